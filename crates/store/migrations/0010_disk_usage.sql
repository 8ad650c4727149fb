-- What a tenant's disks take in the pool, as it was last measured.
ALTER TABLE tenant_usage ADD COLUMN disk_bytes BIGINT NOT NULL DEFAULT 0;

-- When a layer's bytes were last held against its digest; none: when it came in.
ALTER TABLE layers ADD COLUMN verified_at TIMESTAMPTZ;
CREATE INDEX layers_by_verification ON layers ((COALESCE(verified_at, created_at))) WHERE state = 'ready';
CREATE INDEX layers_by_parent ON layers (parent);
