-- One text for SQLite and PostgreSQL. Type names are PostgreSQL's; SQLite keeps what is bound, so times are
-- integers there (microseconds) and UUIDs are 16 bytes. `generation` rises with every write of a row.

CREATE TABLE users (
    id            UUID        PRIMARY KEY,
    name          TEXT        NOT NULL UNIQUE,
    password_hash TEXT,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    generation    BIGINT      NOT NULL
);

-- subject holds relation on object.
CREATE TABLE relations (
    object     TEXT        NOT NULL,
    relation   TEXT        NOT NULL,
    subject    TEXT        NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (object, relation, subject)
);

CREATE TABLE tenants (
    id           UUID        PRIMARY KEY,
    name         TEXT        NOT NULL UNIQUE,
    display_name TEXT        NOT NULL,
    labels       JSONB       NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    updated_at   TIMESTAMPTZ NOT NULL,
    generation   BIGINT      NOT NULL
);

CREATE TABLE idempotency_keys (
    subject     TEXT        NOT NULL,
    key         TEXT        NOT NULL,
    fingerprint BYTEA       NOT NULL,
    outcome     JSONB       NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (subject, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE signing_keys (
    id         TEXT        PRIMARY KEY,
    private    BYTEA       NOT NULL,
    public     BYTEA       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE leases (
    name       TEXT        PRIMARY KEY,
    holder     TEXT        NOT NULL,
    renewed_at TIMESTAMPTZ NOT NULL,
    generation BIGINT      NOT NULL
);
