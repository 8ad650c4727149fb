-- What a sign-in gives. Of every secret here only the digest is kept: it opens nothing. The private keys in signing_keys
-- do: who reads those can make access tokens.

-- A browser that has signed in; expires_at moves on while it is used, ends_at does not.
CREATE TABLE sessions (
    id               UUID        PRIMARY KEY,
    digest           BYTEA       NOT NULL UNIQUE,
    user_id          UUID        NOT NULL REFERENCES users (id),
    authenticated_at TIMESTAMPTZ NOT NULL,
    created_at       TIMESTAMPTZ NOT NULL,
    expires_at       TIMESTAMPTZ NOT NULL,
    ends_at          TIMESTAMPTZ NOT NULL
);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- All refresh tokens that came from one sign-in of one client, each made from the one before it.
CREATE TABLE token_families (
    id               UUID        PRIMARY KEY,
    user_id          UUID        NOT NULL REFERENCES users (id),
    client           TEXT        NOT NULL,
    authenticated_at TIMESTAMPTZ NOT NULL,
    created_at       TIMESTAMPTZ NOT NULL,
    expires_at       TIMESTAMPTZ NOT NULL
);
CREATE INDEX token_families_by_user ON token_families (user_id);
CREATE INDEX token_families_by_end ON token_families (expires_at);

-- A used one is kept: when it comes again, somebody has stolen it, and the whole family ends.
CREATE TABLE refresh_tokens (
    digest     BYTEA       PRIMARY KEY,
    family     UUID        NOT NULL REFERENCES token_families (id),
    expires_at TIMESTAMPTZ NOT NULL,
    used_at    TIMESTAMPTZ
);
CREATE INDEX refresh_tokens_by_family ON refresh_tokens (family);

-- family is what the code was exchanged for; when a code comes again, that ends.
CREATE TABLE authorization_codes (
    digest           BYTEA       PRIMARY KEY,
    user_id          UUID        NOT NULL REFERENCES users (id),
    client           TEXT        NOT NULL,
    redirect_uri     TEXT        NOT NULL,
    challenge        TEXT        NOT NULL,
    authenticated_at TIMESTAMPTZ NOT NULL,
    expires_at       TIMESTAMPTZ NOT NULL,
    family           UUID
);
CREATE INDEX authorization_codes_by_user ON authorization_codes (user_id);
CREATE INDEX authorization_codes_by_end ON authorization_codes (expires_at);

-- A machine without a browser waits with the device code until somebody has approved the user code.
CREATE TABLE device_authorizations (
    device_digest    BYTEA       PRIMARY KEY,
    user_digest      BYTEA       NOT NULL UNIQUE,
    client           TEXT        NOT NULL,
    address          TEXT,
    state            TEXT        NOT NULL,
    user_id          UUID        REFERENCES users (id),
    authenticated_at TIMESTAMPTZ,
    interval_seconds BIGINT      NOT NULL,
    polled_at        TIMESTAMPTZ,
    created_at       TIMESTAMPTZ NOT NULL,
    expires_at       TIMESTAMPTZ NOT NULL
);
CREATE INDEX device_authorizations_by_end ON device_authorizations (expires_at);
