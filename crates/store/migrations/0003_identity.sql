-- A user signs in here (login and password) or at an identity provider (issuer and subject).

ALTER TABLE users RENAME TO users_before;
CREATE TABLE users (
    id            UUID        PRIMARY KEY,
    name          TEXT        NOT NULL,
    email         TEXT,
    login         TEXT        UNIQUE,
    issuer        TEXT,
    subject       TEXT,
    password_hash TEXT,
    -- Wrong passwords in a row, and until when no other is tried.
    failures      BIGINT      NOT NULL,
    paused_until  TIMESTAMPTZ,
    disabled_at   TIMESTAMPTZ,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    generation    BIGINT      NOT NULL,
    UNIQUE (issuer, subject)
);
INSERT INTO users (id, name, login, password_hash, failures, created_at, updated_at, generation)
    SELECT id, name, name, password_hash, 0, created_at, updated_at, generation FROM users_before;
DROP TABLE users_before;
CREATE INDEX users_by_email ON users (email);

-- Whoever holds the token may choose the user's password, once.
CREATE TABLE invitations (
    digest     BYTEA       PRIMARY KEY,
    user_id    UUID        NOT NULL UNIQUE REFERENCES users (id),
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

-- What a subject holds is asked when it leaves; what an object's holders are, when it is listed.
CREATE INDEX relations_by_subject ON relations (subject);

CREATE TABLE groups (
    id           UUID        PRIMARY KEY,
    tenant       UUID        NOT NULL REFERENCES tenants (id),
    name         TEXT        NOT NULL,
    display_name TEXT        NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL,
    generation   BIGINT      NOT NULL,
    UNIQUE (tenant, name)
);
CREATE INDEX groups_by_tenant ON groups (tenant, id);

CREATE TABLE api_keys (
    id           UUID        PRIMARY KEY,
    tenant       UUID        NOT NULL REFERENCES tenants (id),
    owner        UUID        NOT NULL REFERENCES users (id),
    name         TEXT        NOT NULL,
    hint         TEXT        NOT NULL,
    digest       BYTEA       NOT NULL UNIQUE,
    scopes       JSONB       NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    expires_at   TIMESTAMPTZ NOT NULL,
    last_used_at TIMESTAMPTZ
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);
CREATE INDEX api_keys_by_owner ON api_keys (owner, id);

-- One chain a tenant, and one (chain '') for the installation itself: each event's digest covers the one before it.
CREATE TABLE audit_chains (
    chain  TEXT   PRIMARY KEY,
    number BIGINT NOT NULL,
    digest BYTEA  NOT NULL
);

CREATE TABLE audit_events (
    id            UUID        PRIMARY KEY,
    chain         TEXT        NOT NULL,
    number        BIGINT      NOT NULL,
    at            TIMESTAMPTZ NOT NULL,
    actor         TEXT,
    credential    TEXT,
    credential_id TEXT,
    action        TEXT        NOT NULL,
    object        TEXT        NOT NULL,
    outcome       TEXT        NOT NULL,
    code          TEXT,
    request_id    TEXT        NOT NULL,
    address       TEXT,
    details       TEXT        NOT NULL,
    digest        BYTEA       NOT NULL,
    UNIQUE (chain, number)
);
CREATE INDEX audit_events_by_chain ON audit_events (chain, id);
