-- Wrong passwords in a row, by a digest of the login and of where they came from, or of the login alone. Logins that
-- nobody has are counted alike: neither the answer nor what is written tells which ones there are.
CREATE TABLE sign_in_failures (
    key          BYTEA       PRIMARY KEY,
    failures     BIGINT      NOT NULL,
    paused_until TIMESTAMPTZ,
    updated_at   TIMESTAMPTZ NOT NULL
);
CREATE INDEX sign_in_failures_by_age ON sign_in_failures (updated_at);
