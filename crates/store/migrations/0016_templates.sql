-- Memory that was captured with a snapshot's disk, from the wish to the end. Its files are at the host; a row is there before them and goes after them.
CREATE TABLE templates (
    id              UUID        PRIMARY KEY,
    snapshot        TEXT        NOT NULL,
    -- wanted, taken, made, proving, ready, failed, removing
    state           TEXT        NOT NULL,
    fingerprint     TEXT,
    allocated_bytes BIGINT      NOT NULL,
    -- The clone that resumed first, and how long that took.
    proved_at       TIMESTAMPTZ,
    resume_ms       BIGINT,
    reason_code     TEXT,
    reason_message  TEXT,
    -- The clone that is to prove it.
    emulator        UUID,
    disk            UUID,
    slot            BIGINT,
    identity        JSONB,
    started_at      TIMESTAMPTZ,
    deadline_at     TIMESTAMPTZ NOT NULL,
    -- When there is something to do with it; none: nothing.
    due_at          TIMESTAMPTZ,
    failures        BIGINT      NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL
);
CREATE UNIQUE INDEX templates_by_snapshot ON templates (snapshot) WHERE state <> 'removing';
CREATE INDEX templates_due ON templates (due_at) WHERE due_at IS NOT NULL;

-- The memory that an emulator is to resume from, how it came up, and why not otherwise.
ALTER TABLE emulators ADD COLUMN start_from JSONB;
