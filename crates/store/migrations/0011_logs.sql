-- What changes of an emulator have to tell its log, until a journal has it.
CREATE TABLE log_changes (
    emulator       UUID        NOT NULL,
    generation     BIGINT      NOT NULL,
    at             TIMESTAMPTZ NOT NULL,
    incarnation    BIGINT      NOT NULL,
    status         TEXT        NOT NULL,
    reason_code    TEXT,
    reason_message TEXT,
    PRIMARY KEY (emulator, generation)
);
