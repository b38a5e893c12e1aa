-- What stands beside the protocol: how workers are woken, which there are, which writes were refused.
-- Nothing here guards a job. The registry only lets the dead be noticed before their leases run out.

-- A notification wakes a worker and carries no meaning: losing one costs a poll. It takes a lock shared by the whole
-- cluster at COMMIT and cannot be prepared, so it can be switched off: SET faultline.notify = 'off'.
CREATE OR REPLACE FUNCTION faultline.wake(queue text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('faultline.notify', true) IS DISTINCT FROM 'off' AND pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify('faultline', queue);
    END IF;
END $$;

-- A client that freezes inside its transaction is ended by its own backend, and sets the job free. Zero would mean no limit.
CREATE OR REPLACE FUNCTION faultline.limit_idling(idle_limit interval) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN idle_limit IS NOT NULL THEN
        set_config('idle_in_transaction_session_timeout',
                   greatest(1, least(2147483647, ceil(extract(epoch FROM idle_limit) * 1000)))::bigint::text, true) END
$$;

-- ── Intervals ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- How long an interval that begins now lasts. PostgreSQL compares intervals as if every month had 30 days, and adds them by the
-- calendar, so that '-12 mons 360 days 1 hour' equals an hour and ends days ago: limits apply to what this function returns.
-- Infinite for what ends beyond the years that a timestamp can hold, whichever way.
CREATE OR REPLACE FUNCTION faultline.seconds_from_now(span interval) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF isfinite(span) AND abs(extract(year FROM span)) <= 1000 AND abs(extract(day FROM span)) <= 400000
       AND abs(extract(hour FROM span)) <= 10000000 THEN -- no part of the sum leaves the range of a timestamp on its own
        RETURN extract(epoch FROM moment + span - moment);
    END IF;
    RETURN CASE WHEN span IS NOT NULL THEN 'infinity'::double precision END;
END $$;

-- The lease as plain seconds, which end at the same moment whatever they are added to.
CREATE OR REPLACE FUNCTION faultline.checked_lease(lease interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision;
BEGIN
    IF lease > '0' AND lease <= '1 day' AND extract(day FROM lease) = 0 AND extract(month FROM lease) = 0
       AND extract(year FROM lease) = 0 THEN -- as nearly every lease: plain seconds already
        RETURN lease;
    END IF;
    seconds := faultline.seconds_from_now(lease);
    IF (seconds > 0 AND seconds <= 604800) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease lasts more than nothing and at most 7 days, not %', lease USING ERRCODE = 'FL005';
    END IF;
    RETURN make_interval(secs => seconds);
END $$;

-- The time until a retry, likewise. What has passed already is at once.
CREATE OR REPLACE FUNCTION faultline.checked_delay(delay interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision := faultline.seconds_from_now(delay);
BEGIN
    IF (abs(seconds) <= 366 * 86400 * 100.0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a retry comes within 100 years, not in %', delay USING ERRCODE = 'FL005';
    END IF;
    RETURN make_interval(secs => greatest(0, seconds));
END $$;

-- ── Workers ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The session that registers holds the worker's shared advisory lock before its row can be seen, so a registered worker
-- without the lock is one whose sessions have ended. Behind a pooler there are no sessions of its own: holds_locks is
-- then false, and only the lease tells. Called again after every reconnect, and by the heartbeat of a worker whose row was
-- purged, under the lock_key that its sessions hold. Nothing is heard of a worker that is cut off, and its leases are to
-- run out, so that it stops by its own clock before others have its jobs: its lock outlasts them.
-- The lock is tried and not waited for. Any account may take advisory locks, whatever rights it has: where one holds the
-- key, or waits for it, the worker draws another one, and no session can hold them all.
CREATE OR REPLACE FUNCTION faultline.register_worker(
    worker text, host text, pid integer, queues text[], holds_locks boolean, lock_key integer DEFAULT NULL)
RETURNS integer -- its lock_key
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    key integer;
BEGIN
    INSERT INTO faultline.workers AS w (id, lock_key, host, pid, queues, holds_locks)
    VALUES (worker, coalesce(register_worker.lock_key, nextval('faultline.workers_lock_key_seq')::integer),
            left(register_worker.host, 255), register_worker.pid, register_worker.queues, register_worker.holds_locks)
    ON CONFLICT (id) DO UPDATE SET
        holds_locks = excluded.holds_locks, server_started_at = excluded.server_started_at,
        last_heartbeat_at = excluded.last_heartbeat_at, lost_at = NULL
    RETURNING lock_key INTO key;
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
            HINT = 'Find it: SELECT pid FROM pg_locks WHERE locktype = ''advisory'' AND classid = 1717663084.';
    END IF;
    RETURN key;
END $$;

-- A worker reports that its event loop is blocked, and where; with a NULL duration, that the loop turns again. It never
-- waits: the heartbeat's session calls it.
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

CREATE OR REPLACE FUNCTION faultline.drain_worker(worker text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE faultline.workers SET draining = true WHERE id = worker
$$;

-- An operator's verb: ask these workers to hand back what they cannot finish, and to leave; NULL asks all that are not
-- known to be lost. They learn of it from their next heartbeat, behind a pooler too: the notification only makes that
-- one come sooner. A lost worker that was named is asked as well, for the case that it comes back. Asking twice changes
-- nothing. A worker that restarts is another worker, which nobody has asked.
CREATE OR REPLACE FUNCTION faultline.request_drain(workers text[] DEFAULT NULL)
RETURNS TABLE (worker text, requested_at timestamptz, is_lost boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH meant AS MATERIALIZED ( -- in one order: two operators may ask at the same time
            SELECT w.id FROM faultline.workers AS w
            WHERE CASE WHEN request_drain.workers IS NULL THEN w.lost_at IS NULL ELSE w.id = ANY (request_drain.workers) END
            ORDER BY w.id FOR NO KEY UPDATE),
        asked AS (
            UPDATE faultline.workers AS w SET drain_requested_at = coalesce(w.drain_requested_at, clock_timestamp())
            FROM meant AS m WHERE w.id = m.id
            RETURNING w.id, w.drain_requested_at, w.lost_at IS NOT NULL AS is_lost),
        woken AS (SELECT faultline.wake('!' || a.id) FROM asked AS a) -- no queue can have such a name
        SELECT a.id, a.drain_requested_at, a.is_lost FROM asked AS a, (SELECT count(*) FROM woken) AS all_woken ORDER BY a.id;
    PERFORM faultline.write_audit('drain', coalesce('worker ' || array_to_string(request_drain.workers, ', '), 'all workers'),
                                  CASE WHEN FOUND THEN 'done' ELSE 'unchanged' END);
END $$;

CREATE OR REPLACE FUNCTION faultline.deregister_worker(worker text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM faultline.workers WHERE id = worker
$$;

-- Workers whose two sessions are both gone. Only those that registered with this very run of the server: a restart ends
-- every session at once, and says nothing about the processes behind them.
CREATE OR REPLACE FUNCTION faultline.vanished_workers() RETURNS TABLE (worker text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT w.id FROM faultline.workers AS w
    WHERE w.holds_locks AND w.lost_at IS NULL AND w.server_started_at = pg_postmaster_start_time()
      AND w.lock_key::oid NOT IN (
          SELECT l.objid FROM pg_locks AS l
          WHERE l.locktype = 'advisory' AND l.classid = 1717663084 AND l.objsubid = 2 AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;

-- Close the book on workers that have nothing left to give back; forget those lost, or silent, for a day. It waits for no
-- row: one that a heartbeat or an operator has just now is left for the next time.
CREATE OR REPLACE FUNCTION faultline.bury_workers(workers text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE faultline.workers AS w SET lost_at = clock_timestamp()
    WHERE w.id = ANY (ARRAY(
        SELECT o.id FROM faultline.workers AS o WHERE o.id = ANY (bury_workers.workers)
          AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.state = 'running' AND j.lease_owner = o.id)
        ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED));
    DELETE FROM faultline.workers AS w
    WHERE w.id = ANY (ARRAY(
        SELECT o.id FROM faultline.workers AS o
        WHERE o.lost_at < clock_timestamp() - interval '1 day' OR o.last_heartbeat_at < clock_timestamp() - interval '1 day'
        ORDER BY o.id FOR UPDATE SKIP LOCKED));
END $$;

-- Safe to record late, or never: it is a record, not a guard. Called after the refused transaction was rolled back.
CREATE OR REPLACE FUNCTION faultline.record_rejection(job_id uuid, stale_token bigint, worker text, reason text)
RETURNS interval
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job     faultline.jobs;
    overlap interval := '0';
BEGIN
    SELECT * INTO job FROM faultline.jobs WHERE id = record_rejection.job_id;
    IF job.fencing_token > stale_token THEN -- the other attempt began at claimed_at, and ran until it ended or still runs
        overlap := greatest('0', coalesce(job.finished_at, clock_timestamp()) - job.claimed_at);
    END IF;
    INSERT INTO faultline.rejections (job_id, worker, stale_token, current_token, reason, overlap)
    VALUES (record_rejection.job_id, left(record_rejection.worker, 200), record_rejection.stale_token, job.fencing_token,
            left(record_rejection.reason, 100), overlap);
    RETURN overlap;
END $$;

-- ── Sessions that keep a job locked ────────────────────────────────────────────────────────────────────────────────

-- The transactions under way that lock this job's row: those of sessions, and prepared ones. Needs no privilege of the
-- caller's, for pg_locks is open to all. A row names one transaction, or a multixact that stands for several, and the two
-- kinds of number look alike. Where both readings lead to transactions that have locked our table, none is returned.
CREATE OR REPLACE FUNCTION faultline.lockers_of(job_id uuid) RETURNS TABLE (pid integer, holder_xid xid, prepared_as text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    number  xid;
    members xid[];
BEGIN
    SELECT j.xmax INTO number FROM faultline.jobs AS j WHERE j.id = lockers_of.job_id AND j.xmax <> '0'::xid;
    IF number IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        members := ARRAY(SELECT m.xid FROM pg_get_multixact_members(number) AS m);
    EXCEPTION WHEN OTHERS THEN
        members := '{}'; -- there is no such multixact: it is a transaction
    END;
    RETURN QUERY
        WITH live AS MATERIALIZED (
            SELECT l.pid, l.transactionid, p.gid, l.transactionid = number AS is_plain
            FROM pg_locks AS l LEFT JOIN pg_prepared_xacts AS p ON p.transaction = l.transactionid
            WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
              AND l.transactionid = ANY (members || number) AND l.pid IS DISTINCT FROM pg_backend_pid()
              AND EXISTS (SELECT FROM pg_locks AS t
                          WHERE t.locktype = 'relation' AND t.relation = 'faultline.jobs'::regclass AND t.granted
                            AND t.virtualtransaction = l.virtualtransaction
                            AND t.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())))
        SELECT l.pid, l.transactionid, l.gid FROM live AS l
        WHERE (SELECT count(DISTINCT c.is_plain) FROM live AS c) = 1;
END $$;

-- Ends sessions that keep a lapsed job locked: a client that froze in the middle of COPY FROM STDIN is active for PostgreSQL,
-- so its limit on idling does not end it. Only a session that locks the row of a job whose lease ran out more than `grace`
-- ago (a second at least), and that has waited for its client for as long, is ended. One that computes is left alone: it may
-- be about to commit. What this function's owner may not see or end is returned, for the caller to try with its own account.
CREATE OR REPLACE FUNCTION faultline.end_lapsed_holders(grace interval DEFAULT '5 seconds', max_jobs integer DEFAULT 100)
RETURNS TABLE (job_id uuid, worker text, pid integer, holder_xid xid, prepared_as text, account text, application text,
               outcome text) -- ended | working | hidden | not_permitted | prepared
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    held    record;
    session record;
    cutoff  timestamptz := least(statement_timestamp() - grace, statement_timestamp() - interval '1 second');
BEGIN
    FOR held IN
        SELECT j.id, j.lease_owner FROM faultline.jobs AS j
        WHERE j.state = 'running' AND j.lease_expires_at < cutoff
        ORDER BY j.lease_expires_at LIMIT max_jobs
    LOOP
        PERFORM FROM faultline.jobs AS j WHERE j.id = held.id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN FOUND; -- nothing holds it: the next reconcile takes it
        PERFORM pg_stat_clear_snapshot();
        FOR session IN
            SELECT l.pid, l.holder_xid, l.prepared_as, a.usename::text AS account, a.application_name AS application,
                   CASE WHEN l.prepared_as IS NOT NULL THEN 'prepared'
                        WHEN a.state IS NULL THEN 'hidden'
                        WHEN a.wait_event_type = 'Client' AND a.state_change < cutoff THEN 'ended'
                        ELSE 'working' END AS outcome
            FROM faultline.lockers_of(held.id) AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        LOOP
            outcome := session.outcome;
            IF outcome = 'ended' THEN
                BEGIN
                    PERFORM pg_terminate_backend(session.pid);
                EXCEPTION WHEN insufficient_privilege THEN
                    outcome := 'not_permitted';
                END;
            END IF;
            job_id := held.id; worker := held.lease_owner; pid := session.pid; holder_xid := session.holder_xid;
            prepared_as := session.prepared_as; account := session.account; application := session.application;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;
