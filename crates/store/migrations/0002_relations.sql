-- Every change of a relation has a number, so that a replica can ask for what it has missed.

CREATE TABLE relation_revision (
    id       BIGINT PRIMARY KEY,
    revision BIGINT NOT NULL
);
INSERT INTO relation_revision (id, revision) VALUES (1, 0);

-- given is 1 for a relation that was given and 0 for one that was taken back.
CREATE TABLE relation_changes (
    revision BIGINT PRIMARY KEY,
    given    BIGINT NOT NULL,
    object   TEXT   NOT NULL,
    relation TEXT   NOT NULL,
    subject  TEXT   NOT NULL
);
