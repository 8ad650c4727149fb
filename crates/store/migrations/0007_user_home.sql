-- The tenant whose admin made the account: until a platform admin lets it in elsewhere, it belongs there alone.
ALTER TABLE users ADD COLUMN home UUID;

-- The audit is asked for what someone did, and for what was done to something.
CREATE INDEX audit_events_by_actor ON audit_events (chain, actor, id);
CREATE INDEX audit_events_by_object ON audit_events (chain, object, id);
