-- One row per epoch, with the server on which it began.
CREATE TABLE faultline.epochs (
    epoch             bigint      PRIMARY KEY,
    system_identifier bigint,
    timeline          integer,
    restored_from     timestamptz,
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    cause             text        NOT NULL,
    began_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT epoch_fits_in_31_bits CHECK (epoch BETWEEN 0 AND 2147483647)
);

-- When an operator asked the worker to drain.
ALTER TABLE faultline.workers ADD COLUMN drain_requested_at timestamptz;
