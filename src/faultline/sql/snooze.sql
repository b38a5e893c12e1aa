-- Snooze: a handler asks for its job to run again later, and no attempt is used.

-- Queues a job again for later. Safe for the same reason as fail and release: lock_own checks the fence under the row's lock, so
-- of a commit and a snooze the second is refused. A snooze lasts a second at least, so that a handler that always asks for "now"
-- does not occupy its queue. How often a job may be snoozed has no limit: a job that waits for an outside system may wait for
-- weeks. Its log therefore keeps the newest 100 snoozes, and the oldest of these rows also counts those before it (`times`).
CREATE OR REPLACE FUNCTION faultline.snooze(
    job_id uuid, fencing_token bigint, lease_id uuid, delay interval, reason text DEFAULT NULL)
RETURNS TABLE (next_run_at timestamptz, snoozes bigint) -- of this job so far
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    job         faultline.jobs := faultline.lock_own(snooze.job_id, snooze.fencing_token, snooze.lease_id);
    rows_of_job bigint[];
    merged      integer;
BEGIN
    delay := greatest(faultline.checked_delay(delay), interval '1 second');
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'snoozed', left(snooze.reason, 10000), job.claimed_at);
    rows_of_job := ARRAY(SELECT a.id FROM faultline.attempts_log AS a
                         WHERE a.job_id = job.id AND a.outcome = 'snoozed' ORDER BY a.id DESC);
    IF cardinality(rows_of_job) > 100 THEN
        DELETE FROM faultline.attempts_log AS a WHERE a.id = rows_of_job[101] RETURNING a.times INTO merged;
        UPDATE faultline.attempts_log AS a SET times = a.times + merged WHERE a.id = rows_of_job[100];
    END IF;
    RETURN QUERY
        UPDATE faultline.jobs AS j
        SET state = 'queued', attempts = j.attempts - 1, lease_owner = NULL, lease_expires_at = NULL,
            next_run_at = clock_timestamp() + delay
        WHERE j.id = job.id
        RETURNING j.next_run_at, (SELECT sum(a.times) FROM faultline.attempts_log AS a
                                  WHERE a.job_id = job.id AND a.outcome = 'snoozed');
END $$;
