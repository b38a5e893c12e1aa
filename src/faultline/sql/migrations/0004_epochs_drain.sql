-- One row per history of this database: which server it was on when tokens began to be given out in this epoch.
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

-- An operator asked it to hand back its jobs and leave.
ALTER TABLE faultline.workers ADD COLUMN drain_requested_at timestamptz;
