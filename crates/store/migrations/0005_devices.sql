-- Bytes: layers are never written again, disks stand on one. A row is there before its file and goes after it.
CREATE TABLE layers (
    id              UUID        PRIMARY KEY,
    parent          UUID        REFERENCES layers (id),
    -- importing, ready, quarantined, removing
    state           TEXT        NOT NULL,
    source          TEXT,
    virtual_bytes   BIGINT      NOT NULL,
    allocated_bytes BIGINT      NOT NULL,
    digest          TEXT,
    created_at      TIMESTAMPTZ NOT NULL
);
CREATE INDEX layers_unsettled ON layers (id) WHERE state IN ('importing', 'removing');

CREATE TABLE snapshots (
    name            TEXT        PRIMARY KEY,
    -- The order in which they were made: newest first is how they are listed.
    id              UUID        NOT NULL UNIQUE,
    -- None for the platform's own.
    tenant          UUID        REFERENCES tenants (id),
    parent          TEXT,
    layer           UUID        NOT NULL REFERENCES layers (id),
    -- creating, verifying, ready, faulted, deleting
    state           TEXT        NOT NULL,
    problems        JSONB       NOT NULL,
    -- What the host needs besides the disk, as it describes it.
    image           JSONB       NOT NULL,
    device_type     TEXT        NOT NULL,
    android_version TEXT        NOT NULL,
    rooted_at       TIMESTAMPTZ,
    rooted_by       TEXT,
    origin          JSONB       NOT NULL,
    labels          JSONB       NOT NULL,
    created_by      TEXT,
    created_at      TIMESTAMPTZ NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL,
    last_used_at    TIMESTAMPTZ,
    use_count       BIGINT      NOT NULL,
    generation      BIGINT      NOT NULL
);
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, id);
CREATE INDEX snapshots_by_layer ON snapshots (layer);
CREATE INDEX snapshots_by_root ON snapshots (rooted_at) WHERE rooted_at IS NOT NULL;

CREATE TABLE emulators (
    id                   UUID        PRIMARY KEY,
    tenant               UUID        NOT NULL,
    owner                TEXT        NOT NULL,
    name                 TEXT        NOT NULL,
    labels               JSONB       NOT NULL,
    device_type          TEXT        NOT NULL,
    android_version      TEXT        NOT NULL,
    memory_bytes         BIGINT      NOT NULL,
    cpus                 BIGINT      NOT NULL,
    snapshot             TEXT        NOT NULL,
    snapshot_parent      TEXT,
    image                TEXT        NOT NULL,
    disk                 UUID        NOT NULL,
    identity             JSONB       NOT NULL,
    slot                 BIGINT,
    -- What is wanted: running, parked, gone; and which start of the device.
    wanted               TEXT        NOT NULL,
    incarnation          BIGINT      NOT NULL,
    cause                TEXT        NOT NULL,
    -- What is: none, booting, ready, paused, silent, exited; failed counts besides.
    phase                TEXT        NOT NULL,
    phase_incarnation    BIGINT      NOT NULL,
    phase_since          TIMESTAMPTZ NOT NULL,
    disk_ready_at        TIMESTAMPTZ,
    started_at           TIMESTAMPTZ,
    boot_duration_ms     BIGINT,
    failed_at            TIMESTAMPTZ,
    reason_code          TEXT,
    reason_message       TEXT,
    -- Follows from both; kept for filters.
    status               TEXT        NOT NULL,
    -- Whether a loop has something to do, and not before when.
    unsettled            BIGINT      NOT NULL,
    due_at               TIMESTAMPTZ NOT NULL,
    failures             BIGINT      NOT NULL,
    expires_at           TIMESTAMPTZ,
    idle_timeout_seconds BIGINT,
    active_at            TIMESTAMPTZ NOT NULL,
    created_at           TIMESTAMPTZ NOT NULL,
    updated_at           TIMESTAMPTZ NOT NULL,
    terminated_at        TIMESTAMPTZ,
    generation           BIGINT      NOT NULL
);
CREATE INDEX emulators_by_tenant ON emulators (tenant, id);
CREATE INDEX emulators_by_status ON emulators (tenant, status, id);
CREATE INDEX emulators_due ON emulators (due_at) WHERE unsettled = 1;
CREATE INDEX emulators_expiring ON emulators (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX emulators_terminated ON emulators (terminated_at) WHERE terminated_at IS NOT NULL;

CREATE TABLE disks (
    id       UUID   PRIMARY KEY,
    emulator UUID   NOT NULL,
    layer    UUID   NOT NULL REFERENCES layers (id)
);
CREATE INDEX disks_by_layer ON disks (layer);
CREATE INDEX disks_by_emulator ON disks (emulator);

-- Loopback addresses: first those that nobody had, then the one that has been free for longest.
CREATE TABLE slots (
    id   BIGINT PRIMARY KEY,
    next BIGINT NOT NULL
);
INSERT INTO slots (id, next) VALUES (1, 1);
CREATE TABLE free_slots (
    slot        BIGINT      PRIMARY KEY,
    released_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX free_slots_by_age ON free_slots (released_at, slot);

-- What a tenant uses of its quotas; kept with every change, so that nobody has to count.
CREATE TABLE tenant_usage (
    tenant       UUID   PRIMARY KEY,
    emulators    BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL
);
