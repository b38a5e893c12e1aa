-- Unique jobs. See schema.sql and unique.sql.
CREATE TABLE faultline.unique_jobs (
    job_id      uuid        PRIMARY KEY,
    unique_key  text        NOT NULL,           -- the task and the values of arguments, as unique_key() writes them
    while_      text        NOT NULL,           -- the job counts while it waits for its first claim, or until it ends
    held_until  timestamptz,                    -- it counts at least until then
    replaced    integer     NOT NULL DEFAULT 0, -- later enqueues that replaced its payload
    rescheduled integer     NOT NULL DEFAULT 0, -- later enqueues that moved its time
    changed_at  timestamptz,                    -- the last of these
    CONSTRAINT while_is_known CHECK (while_ IN ('queued', 'unfinished')),
    CONSTRAINT unique_key_is_at_most_1400_bytes CHECK (octet_length(unique_key) <= 1400)
);
CREATE TABLE faultline.unique_keys (
    unique_key text PRIMARY KEY,
    job_id     uuid NOT NULL
);
ALTER TABLE faultline.attempts_log DROP CONSTRAINT outcome_is_known;
ALTER TABLE faultline.attempts_log ADD CONSTRAINT outcome_is_known CHECK (
    outcome IN ('expired', 'worker_lost', 'failed', 'released', 'snoozed', 'cancelled', 'retried', 'edited', 'replaced')) NOT VALID;
DROP FUNCTION IF EXISTS faultline.enqueue_jobs(jsonb, text); -- it returns one column more; enqueue.sql has the new one
