-- What disks held, kept in a repository of each tenant.
CREATE TABLE backups (
    id              UUID        PRIMARY KEY,
    tenant          UUID        NOT NULL,
    owner           TEXT        NOT NULL,
    source          JSONB       NOT NULL,
    -- The snapshot that it is of, where it is of one.
    source_snapshot TEXT,
    layer           UUID        NOT NULL,
    -- The layer, for as long as it is kept in the pool for the sake of this.
    held_layer      UUID,
    heritage        JSONB       NOT NULL,
    labels          JSONB       NOT NULL,
    -- queued, running, completed, failed, deleting
    phase           TEXT        NOT NULL,
    bytes_done      BIGINT      NOT NULL,
    bytes_total     BIGINT      NOT NULL,
    location        TEXT,
    stored          TEXT,
    checksum        TEXT,
    disk_bytes      BIGINT,
    added_bytes     BIGINT,
    error           JSONB,
    failures        BIGINT      NOT NULL,
    due_at          TIMESTAMPTZ NOT NULL,
    started_at      TIMESTAMPTZ,
    completed_at    TIMESTAMPTZ,
    expires_at      TIMESTAMPTZ,
    created_at      TIMESTAMPTZ NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL,
    generation      BIGINT      NOT NULL
);
CREATE INDEX backups_by_tenant ON backups (tenant, id);
CREATE INDEX backups_by_layer ON backups (layer);
CREATE INDEX backups_by_held_layer ON backups (held_layer) WHERE held_layer IS NOT NULL;
CREATE INDEX backups_by_snapshot ON backups (source_snapshot) WHERE source_snapshot IS NOT NULL;
CREATE INDEX backups_due ON backups (due_at) WHERE phase IN ('queued', 'running', 'deleting');
CREATE INDEX backups_queued ON backups (due_at) WHERE phase = 'queued';
CREATE INDEX backups_under_way ON backups (due_at) WHERE phase IN ('running', 'deleting');
CREATE INDEX backups_expiring ON backups (expires_at) WHERE expires_at IS NOT NULL;

-- Backups on their way to becoming snapshots again, and what became of that.
CREATE TABLE restores (
    id           UUID        PRIMARY KEY,
    tenant       UUID        NOT NULL,
    owner        TEXT        NOT NULL,
    backup       UUID        NOT NULL,
    snapshot     TEXT        NOT NULL,
    layer        UUID        NOT NULL,
    -- queued, running, completed, failed
    phase        TEXT        NOT NULL,
    bytes_done   BIGINT      NOT NULL,
    bytes_total  BIGINT      NOT NULL,
    error        JSONB,
    failures     BIGINT      NOT NULL,
    due_at       TIMESTAMPTZ NOT NULL,
    started_at   TIMESTAMPTZ,
    completed_at TIMESTAMPTZ,
    created_at   TIMESTAMPTZ NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL,
    generation   BIGINT      NOT NULL
);
CREATE INDEX restores_by_tenant ON restores (tenant, id);
CREATE INDEX restores_by_backup ON restores (backup);
CREATE INDEX restores_by_layer ON restores (layer);
CREATE INDEX restores_due ON restores (due_at) WHERE phase IN ('queued', 'running');

-- Repositories in which something was forgotten that is still to be removed.
CREATE TABLE backup_prunes (
    tenant   UUID        PRIMARY KEY,
    failures BIGINT      NOT NULL,
    due_at   TIMESTAMPTZ NOT NULL
);
