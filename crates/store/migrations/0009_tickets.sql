-- What opens one stream to one emulator, once, within seconds, where a browser cannot send a credential. Only the
-- digest is kept; beside it who it stands for, and as much of the credential as bounds what it opens.
CREATE TABLE tickets (
    digest                BYTEA       PRIMARY KEY,
    emulator              UUID        NOT NULL,
    channel               TEXT        NOT NULL,
    subject               TEXT        NOT NULL,
    credential_kind       TEXT        NOT NULL,
    credential_id         TEXT,
    credential_issuer     TEXT,
    credential_tenant     UUID,
    credential_expires_at TIMESTAMPTZ,
    expires_at            TIMESTAMPTZ NOT NULL
);
CREATE INDEX tickets_by_end ON tickets (expires_at);
