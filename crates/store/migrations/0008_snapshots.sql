-- What stands on a layer: snapshots, disks and layers; at none it goes. How long its lineage is, and how many bytes that takes.
ALTER TABLE layers ADD COLUMN refs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE layers ADD COLUMN depth BIGINT NOT NULL DEFAULT 1;
ALTER TABLE layers ADD COLUMN reach_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE layers SET reach_bytes = allocated_bytes,
    refs = (SELECT COUNT(*) FROM snapshots WHERE snapshots.layer = layers.id)
         + (SELECT COUNT(*) FROM disks WHERE disks.layer = layers.id);

-- What went wrong, for people; which belong together; how far its content is believed; how it was captured; the boot that proved it.
ALTER TABLE snapshots ADD COLUMN fault TEXT;
ALTER TABLE snapshots ADD COLUMN of_group TEXT;
ALTER TABLE snapshots ADD COLUMN trust TEXT NOT NULL DEFAULT 'protected';
ALTER TABLE snapshots ADD COLUMN consistency TEXT;
ALTER TABLE snapshots ADD COLUMN verified JSONB;
CREATE INDEX snapshots_by_parent ON snapshots (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX snapshots_deleting ON snapshots (id) WHERE state = 'deleting';

-- How many children a snapshot has in a tenant, so that nobody has to count; and in all of them, under the nil tenant.
CREATE TABLE snapshot_children (
    snapshot TEXT   NOT NULL,
    tenant   UUID   NOT NULL,
    children BIGINT NOT NULL,
    PRIMARY KEY (snapshot, tenant)
);

-- The snapshot that a disk is a clone of, and since when.
ALTER TABLE disks ADD COLUMN snapshot TEXT;
ALTER TABLE disks ADD COLUMN created_at TIMESTAMPTZ;
UPDATE disks SET snapshot = (SELECT emulators.snapshot FROM emulators WHERE emulators.id = disks.emulator),
    created_at = (SELECT emulators.created_at FROM emulators WHERE emulators.id = disks.emulator);
CREATE INDEX disks_by_snapshot ON disks (snapshot, id) WHERE snapshot IS NOT NULL;

-- The capture that holds an emulator; what it goes back to if a swap fails; the disk that is to go.
ALTER TABLE emulators ADD COLUMN capturing TEXT;
ALTER TABLE emulators ADD COLUMN previous JSONB;
ALTER TABLE emulators ADD COLUMN discarded UUID;

-- A device's disk on its way to becoming a layer, while the device goes on with another.
CREATE TABLE captures (
    snapshot    TEXT        PRIMARY KEY,
    emulator    UUID        NOT NULL,
    layer       UUID        NOT NULL,
    from_disk   UUID        NOT NULL,
    to_disk     UUID        NOT NULL,
    -- wanted, switched, abandoned
    state       TEXT        NOT NULL,
    deadline_at TIMESTAMPTZ NOT NULL,
    due_at      TIMESTAMPTZ NOT NULL,
    failures    BIGINT      NOT NULL,
    reason      TEXT
);
CREATE UNIQUE INDEX captures_by_emulator ON captures (emulator) WHERE state = 'wanted';
CREATE INDEX captures_due ON captures (due_at);

-- A throw-away clone that is to prove a snapshot.
CREATE TABLE verifications (
    snapshot   TEXT        PRIMARY KEY,
    -- queued, booting, ending
    state      TEXT        NOT NULL,
    queued_at  TIMESTAMPTZ NOT NULL,
    emulator   UUID,
    disk       UUID,
    slot       BIGINT,
    identity   JSONB,
    started_at TIMESTAMPTZ,
    due_at     TIMESTAMPTZ NOT NULL,
    failures   BIGINT      NOT NULL,
    outcome    JSONB
);
CREATE INDEX verifications_by_age ON verifications (queued_at);
