-- Workers: the registry, drain requests, and what workers report.
-- None of this protects a job. With the registry, the reconciler notices a dead worker before its leases expire.

-- ── The registry ───────────────────────────────────────────────────────────────────────────────────────────────────

-- Registers a worker. The session takes the worker's shared advisory lock before the row becomes visible. So if a worker is
-- registered and its lock is free, its sessions have ended. Behind a pooler a worker has no sessions of its own: holds_locks is
-- false, and only an expired lease shows that the worker died. A worker calls this again after every reconnect, when its queues
-- have changed, and when its heartbeat finds that the row was purged; it then gives the lock_key that its sessions hold.
-- tcp_user_timeout keeps the lock of an unreachable worker for longer than its leases, so that the worker stops by its own clock
-- before others get its jobs.
-- The function does not wait for the lock, because any account can hold an advisory lock. If the key is taken, it tries
-- another random one; no session can hold them all. It does the same if another worker is registered under that key: a promoted
-- server may issue keys again that workers of the lost server hold, and those workers register here with them.
CREATE OR REPLACE FUNCTION faultline.register_worker(
    worker text, host text, pid integer, queues text[], holds_locks boolean, lock_key integer DEFAULT NULL)
RETURNS integer -- its lock_key
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    key integer;
BEGIN
    LOOP
        BEGIN
            INSERT INTO faultline.workers AS w (id, lock_key, host, pid, queues, holds_locks)
            VALUES (worker, coalesce(register_worker.lock_key, nextval('faultline.workers_lock_key_seq')::integer),
                    left(register_worker.host, 255), register_worker.pid, register_worker.queues, register_worker.holds_locks)
            ON CONFLICT (id) DO UPDATE SET
                queues = excluded.queues, holds_locks = excluded.holds_locks, server_started_at = excluded.server_started_at,
                last_heartbeat_at = excluded.last_heartbeat_at, lost_at = NULL
            RETURNING lock_key INTO key;
            EXIT;
        EXCEPTION WHEN unique_violation THEN -- another worker has this lock_key
            register_worker.lock_key := 1 + floor(random() * 2147483646)::integer;
        END;
    END LOOP;
    PERFORM faultline.broadcast('!'); -- a leading reconciler without other workers looks once a second only
    IF register_worker.holds_locks THEN
        PERFORM set_config('tcp_user_timeout', '600000', false);
        FOR try IN 1..100 LOOP
            IF pg_try_advisory_lock_shared(1717663084, key) THEN
                RETURN key;
            END IF;
            UPDATE faultline.workers AS w SET lock_key = 1 + floor(random() * 2147483646)::integer
            WHERE w.id = worker RETURNING w.lock_key INTO key;
        END LOOP;
        RAISE EXCEPTION 'another session holds the advisory lock that worker % needs', quote_literal(worker)
            USING ERRCODE = 'lock_not_available',
            HINT = 'End the session: SELECT pid FROM pg_locks WHERE locktype = ''advisory'' AND classid = 1717663084.';
    END IF;
    RETURN key;
END $$;

CREATE OR REPLACE FUNCTION faultline.deregister_worker(worker text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM faultline.idle_workers WHERE worker = deregister_worker.worker;
    DELETE FROM faultline.workers WHERE id = deregister_worker.worker
$$;

-- Workers whose two sessions have both ended. Only those that registered since the server started: a restart ends every
-- session, and says nothing about the clients' processes.
CREATE OR REPLACE FUNCTION faultline.vanished_workers() RETURNS TABLE (worker text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.id FROM faultline.workers AS w
    WHERE w.holds_locks AND w.lost_at IS NULL AND w.server_started_at = pg_postmaster_start_time()
      AND w.lock_key::oid NOT IN (
          SELECT l.objid FROM pg_locks AS l
          WHERE l.locktype = 'advisory' AND l.classid = 1717663084 AND l.objsubid = 2 AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;

-- Marks these workers as lost if they hold no jobs, and deletes workers that were lost or silent for a day. Locked rows are
-- skipped and left for the next call.
CREATE OR REPLACE FUNCTION faultline.bury_workers(workers text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE faultline.workers AS w SET lost_at = clock_timestamp()
    WHERE w.id = ANY (ARRAY(
        SELECT o.id FROM faultline.workers AS o WHERE o.id = ANY (bury_workers.workers)
          AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.state = 'running' AND j.lease_owner = o.id)
        ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED));
    DELETE FROM faultline.idle_workers AS i -- a silent worker that is alive announces itself again
    WHERE i.worker = ANY (bury_workers.workers) OR NOT EXISTS (
        SELECT FROM faultline.workers AS w WHERE w.id = i.worker AND w.last_heartbeat_at > clock_timestamp() - interval '1 minute');
    DELETE FROM faultline.workers AS w
    WHERE w.id = ANY (ARRAY(
        SELECT o.id FROM faultline.workers AS o
        WHERE o.lost_at < clock_timestamp() - interval '1 day' OR o.last_heartbeat_at < clock_timestamp() - interval '1 day'
        ORDER BY o.id FOR UPDATE SKIP LOCKED));
END $$;

-- The leases that this worker has in the database. If the answer to a claim was lost, the worker does not know all of them.
-- A function, because workers may read the payloads of claimed jobs only.
CREATE OR REPLACE FUNCTION faultline.leases_of(worker text)
RETURNS TABLE (job_id uuid, fencing_token bigint, lease_id uuid, task text, queue text, payload jsonb, attempts integer,
               max_attempts integer, crashes integer, priority integer, next_run_at timestamptz, trace_context text,
               overrides jsonb, scheduled_for timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT j.id, j.fencing_token, j.lease_id, j.task, j.queue, j.payload, j.attempts, j.max_attempts, j.crashes,
           j.priority, j.next_run_at, j.trace_context, j.overrides, j.scheduled_for
    FROM faultline.jobs AS j WHERE j.state = 'running' AND j.lease_owner = worker
$$;

-- ── Drain ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Asks these workers to drain: to release the jobs that they cannot finish, and to stop. NULL asks all workers that are not
-- lost. Each worker gets the request with its next heartbeat, also behind a pooler; the notification makes it send one at once. A
-- lost worker is asked only if it is named, in case it returns. A second request changes nothing. A restarted worker is a new one.
CREATE OR REPLACE FUNCTION faultline.request_drain(workers text[] DEFAULT NULL)
RETURNS TABLE (worker text, requested_at timestamptz, is_lost boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH chosen AS MATERIALIZED ( -- in one order, so that two calls at once do not deadlock
            SELECT w.id FROM faultline.workers AS w
            WHERE CASE WHEN request_drain.workers IS NULL THEN w.lost_at IS NULL ELSE w.id = ANY (request_drain.workers) END
            ORDER BY w.id FOR NO KEY UPDATE),
        asked AS (
            UPDATE faultline.workers AS w SET drain_requested_at = coalesce(w.drain_requested_at, clock_timestamp())
            FROM chosen AS c WHERE w.id = c.id
            RETURNING w.id, w.drain_requested_at, w.lost_at IS NOT NULL AS is_lost),
        woken AS (SELECT faultline.broadcast('!' || a.id) FROM asked AS a) -- no queue has such a name
        SELECT a.id, a.drain_requested_at, a.is_lost FROM asked AS a, (SELECT count(*) FROM woken) AS all_woken ORDER BY a.id;
    PERFORM faultline.write_audit('drain', coalesce('worker ' || array_to_string(request_drain.workers, ', '), 'all workers'),
                                  CASE WHEN FOUND THEN 'done' ELSE 'unchanged' END);
END $$;

CREATE OR REPLACE FUNCTION faultline.drain_worker(worker text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM faultline.idle_workers WHERE worker = drain_worker.worker;
    UPDATE faultline.workers SET draining = true WHERE id = drain_worker.worker
$$;

-- ── Reports ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Records that the worker's event loop is blocked, and where; with a NULL duration, that it runs again. It never waits for a
-- lock, because the heartbeat's session calls it.
CREATE OR REPLACE FUNCTION faultline.report_blocked(
    worker text, duration interval, job_id uuid DEFAULT NULL, frame text DEFAULT NULL, stack text DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE faultline.workers
    SET blocked_since = clock_timestamp() - duration,
        blocked_job = CASE WHEN duration IS NOT NULL THEN report_blocked.job_id END,
        blocked_frame = CASE WHEN duration IS NOT NULL THEN left(frame, 1000) END,
        blocked_stack = CASE WHEN duration IS NOT NULL THEN left(stack, 10000) END
    WHERE id = (SELECT w.id FROM faultline.workers AS w WHERE w.id = worker FOR NO KEY UPDATE SKIP LOCKED)
$$;

-- Records a refused write, after its transaction was rolled back. Safe to call late, or never: nothing depends on it.
CREATE OR REPLACE FUNCTION faultline.record_rejection(job_id uuid, stale_token bigint, worker text, reason text)
RETURNS interval
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job     faultline.jobs;
    overlap interval := '0';
BEGIN
    SELECT * INTO job FROM faultline.jobs WHERE id = record_rejection.job_id;
    IF job.fencing_token > stale_token THEN -- the newer attempt began at claimed_at, and ended at finished_at or still runs
        overlap := greatest('0', coalesce(job.finished_at, clock_timestamp()) - job.claimed_at);
    END IF;
    INSERT INTO faultline.rejections (job_id, worker, stale_token, current_token, reason, overlap)
    VALUES (record_rejection.job_id, left(record_rejection.worker, 200), record_rejection.stale_token, job.fencing_token,
            left(record_rejection.reason, 100), overlap);
    RETURN overlap;
END $$;
