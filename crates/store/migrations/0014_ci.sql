-- The job that an emulator was started for: what it is, what it was started from, what is captured of it at its end.
ALTER TABLE emulators ADD COLUMN job JSONB;

-- What jobs have left to be started from, by all that must fit before its age counts. A row comes and goes with its snapshot.
CREATE TABLE restore_points (
    snapshot    TEXT  PRIMARY KEY,
    -- The snapshot's own: the newer, the larger.
    id          UUID  NOT NULL,
    tenant      UUID  NOT NULL,
    device_type TEXT  NOT NULL,
    abi         TEXT  NOT NULL,
    trust       TEXT  NOT NULL,
    -- Bytes, so that both databases compare them as such.
    key         BYTEA,
    project     TEXT,
    ref         TEXT
);
CREATE INDEX restore_points_by_age ON restore_points (tenant, device_type, abi, trust, id);
CREATE INDEX restore_points_by_key ON restore_points (tenant, device_type, abi, trust, key, id) WHERE key IS NOT NULL;
CREATE INDEX restore_points_by_ref ON restore_points (tenant, device_type, abi, trust, project, ref, id) WHERE ref IS NOT NULL;
