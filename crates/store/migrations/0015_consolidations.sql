-- Layers that are on their way to standing on fewer others. Each holds its layer, and once that has moved, what it stood on before, too.
CREATE TABLE consolidations (
    layer           UUID        PRIMARY KEY,
    onto            UUID        NOT NULL,
    -- merging, merged, settling
    state           TEXT        NOT NULL,
    -- The room that is kept free for it.
    reserved_bytes  BIGINT      NOT NULL,
    -- What the merged file takes, and its digest.
    allocated_bytes BIGINT,
    digest          TEXT,
    -- What the layer stood on before.
    was_on          UUID,
    created_at      TIMESTAMPTZ NOT NULL,
    due_at          TIMESTAMPTZ NOT NULL,
    failures        BIGINT      NOT NULL
);

-- Long lineages, and snapshots that wait for theirs to become shorter.
CREATE INDEX layers_by_depth ON layers (depth, id) WHERE state = 'ready';
CREATE INDEX snapshots_too_deep ON snapshots (id) WHERE CAST(problems AS TEXT) LIKE '%chain_too_deep%';
