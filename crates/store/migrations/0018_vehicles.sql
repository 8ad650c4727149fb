-- The car around an automotive device: which one it has, and what its properties were when a layer was captured.
ALTER TABLE emulators ADD COLUMN vehicle BIGINT;
UPDATE emulators SET vehicle = 1 WHERE device_type = 'automotive' AND terminated_at IS NULL;
CREATE INDEX emulators_with_vehicle ON emulators (id) WHERE vehicle IS NOT NULL;

CREATE TABLE vehicle_states (
    layer UUID  PRIMARY KEY,
    state JSONB NOT NULL
);
