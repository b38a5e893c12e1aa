-- Snoozed attempts in the log, and the progress of running jobs. See schema.sql.
ALTER TABLE faultline.attempts_log ADD COLUMN times integer NOT NULL DEFAULT 1;
ALTER TABLE faultline.attempts_log DROP CONSTRAINT outcome_is_known;
ALTER TABLE faultline.attempts_log ADD CONSTRAINT outcome_is_known CHECK (
    outcome IN ('expired', 'worker_lost', 'failed', 'released', 'snoozed', 'cancelled', 'retried', 'edited')) NOT VALID;
CREATE TABLE faultline.job_progress (
    job_id        uuid        PRIMARY KEY,
    fencing_token bigint      NOT NULL,
    fraction      real        NOT NULL,
    message       text,
    reported_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT fraction_is_0_to_1 CHECK (fraction BETWEEN 0 AND 1),
    CONSTRAINT message_is_at_most_500_characters CHECK (length(message) <= 500)
) WITH (fillfactor = 50);
