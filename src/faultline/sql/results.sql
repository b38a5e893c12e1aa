-- Results: waiters read how jobs ended, and are notified of their ends.
-- A waiter reads the outcomes first. It then listens on the channel faultline_results, marks the jobs that have not ended
-- (await_jobs), and reads again. The end of a marked job sends a notification with its id. Losing a notification costs one poll
-- interval, so nothing here is needed for a result to arrive.

-- Marks jobs, so that their ends send notifications. Safe because it changes no other column and waits for no lock: a job that
-- is locked, for example by the commit that ends it, is left unmarked, and `outcomes` says so. The mark of a waiter that died
-- stays, and costs one notification. A claim skips a queued job that is locked here, so its workers are notified once more.
CREATE OR REPLACE FUNCTION faultline.await_jobs(job_ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    queues integer; -- that were notified
BEGIN
    WITH free AS MATERIALIZED (
        SELECT j.id FROM faultline.jobs AS j
        WHERE j.id = ANY (job_ids) AND j.state IN ('queued', 'running') AND NOT j.awaited
        ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),
    marked AS (
        UPDATE faultline.jobs AS j SET awaited = true WHERE j.id = ANY (ARRAY(SELECT f.id FROM free AS f))
        RETURNING j.queue, j.state, j.next_run_at),
    woken AS (
        SELECT faultline.wake(m.queue, count(*)) FROM marked AS m
        WHERE m.state = 'queued' AND m.next_run_at <= clock_timestamp() GROUP BY m.queue)
    SELECT count(*) INTO queues FROM woken;
END $$;

-- How these jobs ended, or that they have not: state is NULL for a job that does not exist (any more). The ledger knows the
-- result of a job that has been purged. An error is shown for failed jobs only. The caller knows the ids, which are random
-- enough not to be guessed.
CREATE OR REPLACE FUNCTION faultline.outcomes(job_ids uuid[])
RETURNS TABLE (job_id uuid, state text, failed_reason text, error text, result jsonb, awaited boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT asked.id, coalesce(j.state, CASE WHEN l.job_id IS NOT NULL THEN 'succeeded' END), j.failed_reason,
               CASE WHEN j.state = 'failed' THEN j.last_error END, l.result, coalesce(j.awaited, false)
        FROM unnest(job_ids) AS asked (id)
        LEFT JOIN faultline.jobs AS j ON j.id = asked.id
        LEFT JOIN faultline.ledger AS l ON l.job_id = asked.id;
END $$;

-- Notifies waiters of the end of a job, whichever function ends it: commit, fail, cancel, reconcile, sift. A job that is retried
-- later starts without the mark. As in wake (notifications.sql), it can be switched off, and is skipped while the server's queue of
-- notifications is half full. PREPARE TRANSACTION is refused after a notification: SET LOCAL faultline.notify = 'off' before.
CREATE OR REPLACE FUNCTION faultline.notify_waiters() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.state IN ('succeeded', 'failed') THEN
        NEW.awaited := false;
        IF current_setting('faultline.notify', true) IS DISTINCT FROM 'off' AND pg_notification_queue_usage() < 0.5 THEN
            PERFORM pg_notify('faultline_results', NEW.id::text);
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- Only the mark is in the condition: PostgreSQL prepares it anew for every statement.
CREATE OR REPLACE TRIGGER notify_waiters BEFORE UPDATE ON faultline.jobs FOR EACH ROW
WHEN (NEW.awaited)
EXECUTE FUNCTION faultline.notify_waiters();
