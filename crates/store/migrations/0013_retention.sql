-- Which snapshots of a group are kept: by tenant, group (all where none is named) and the mode in which it is carried out.
CREATE TABLE retention_policies (
    id         UUID        PRIMARY KEY,
    tenant     UUID        NOT NULL,
    of_group   TEXT,
    -- always, pressure
    mode       TEXT        NOT NULL,
    rules      JSONB       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    generation BIGINT      NOT NULL
);
CREATE UNIQUE INDEX retention_policies_by_group ON retention_policies (tenant, (COALESCE(of_group, '')), mode);

-- How relevant a snapshot is, what made it so, and what kept it when retention last looked; none of it before it did.
ALTER TABLE snapshots ADD COLUMN retention_score BIGINT;
ALTER TABLE snapshots ADD COLUMN score_breakdown JSONB;
ALTER TABLE snapshots ADD COLUMN kept_because JSONB;
ALTER TABLE snapshots ADD COLUMN annotated_at TIMESTAMPTZ;
