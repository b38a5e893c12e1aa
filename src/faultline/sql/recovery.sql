-- Recovery: of jobs whose workers died, after an outage of the server, from sessions that keep a job locked, after a clock set back.

-- ── Jobs of dead workers ───────────────────────────────────────────────────────────────────────────────────────────

-- Which of the running jobs reconcile examines for expired leases: those after the first pair, up to the second. The reconciler
-- examines all of them. A claim goes on where the former one of this session ended, with at most 1000 jobs, so that the claims of
-- idle workers cost the same with any number of running jobs.
CREATE OR REPLACE FUNCTION faultline.running_to_examine(
    is_all boolean, OUT created_after timestamptz, OUT after_id uuid, OUT created_until timestamptz, OUT last_id uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    examined jsonb; -- the last pair of the former claim
    ignored  text;
BEGIN
    created_after := '-infinity';
    after_id := '00000000-0000-0000-0000-000000000000';
    IF NOT is_all THEN
        examined := nullif(current_setting('faultline.examined', true), '');
        IF examined IS NOT NULL THEN
            created_after := examined ->> 0;
            after_id := examined ->> 1;
        END IF;
        SELECT j.created_at, j.id INTO created_until, last_id FROM faultline.jobs AS j
        WHERE j.state = 'running' AND (j.created_at, j.id) > (created_after, after_id)
        ORDER BY j.created_at, j.id OFFSET 999 LIMIT 1;
        IF examined IS NOT NULL OR last_id IS NOT NULL THEN
            ignored := set_config('faultline.examined',
                CASE WHEN last_id IS NULL THEN '' ELSE jsonb_build_array(created_until, last_id)::text END, false);
        END IF;
    END IF;
    created_until := coalesce(created_until, 'infinity');
    last_id := coalesce(last_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
END $$;

-- When the first lease runs out, for the leading reconciler, which asks several times a second. With n running jobs the answer of
-- this session serves for n * 20 microseconds, so that the question takes a few percent of its time. A time that has passed is
-- read again at once.
CREATE OR REPLACE FUNCTION faultline.next_expiry() RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    moment  timestamptz := clock_timestamp();
    known   jsonb := nullif(current_setting('faultline.next_expiry', true), ''); -- [until when it serves, the first expiry]
    first   timestamptz;
    running bigint;
    ignored text;
BEGIN
    IF (known ->> 0)::timestamptz > moment AND (known ->> 1)::timestamptz > moment
       AND (known ->> 0)::timestamptz < moment + interval '1 minute' THEN -- else the clock was set back
        RETURN (known ->> 1)::timestamptz;
    END IF;
    SELECT min(j.lease_expires_at), count(*) INTO first, running FROM faultline.jobs AS j WHERE j.state = 'running';
    ignored := set_config('faultline.next_expiry', CASE WHEN running > 1000 THEN
        jsonb_build_array(moment + running * interval '20 microseconds', first)::text ELSE '' END, false);
    RETURN first;
END $$;

-- Queues the jobs of dead workers again: jobs whose lease has expired, jobs of `dead_workers`, and jobs with a lease in
-- `lapsed_leases`, which the reconciler saw without renewal for longer than its length, by the reconciler's steady clock. A job
-- without attempts left is failed as poison. Safe because a mistake only wastes work: a worker that is alive after all cannot
-- commit. Locked rows are skipped, so a commit in progress wins. Any number of reconcilers may run at once.
-- It reads the running jobs one after the other, because renewals are cheap only while no index has the time of expiry. A claim,
-- which names its queues, reads at most 1000 of them (running_to_examine).
CREATE OR REPLACE FUNCTION faultline.reconcile(
    max_jobs integer DEFAULT 100, dead_workers text[] DEFAULT '{}', lapsed_leases uuid[] DEFAULT '{}',
    queues text[] DEFAULT NULL)
RETURNS TABLE (job_id uuid, fencing_token bigint, worker text, attempts integer, state text, cause text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    part    record; -- which running jobs to examine
    expired uuid[];
    lost    uuid[];
BEGIN
    part := faultline.running_to_examine(queues IS NULL);
    expired := ARRAY(
        SELECT j.id FROM faultline.jobs AS j
        WHERE j.state = 'running' AND j.lease_expires_at <= statement_timestamp()
          AND (reconcile.queues IS NULL OR j.queue = ANY (reconcile.queues))
          AND (j.created_at, j.id) > (part.created_after, part.after_id) AND (j.created_at, j.id) <= (part.created_until, part.last_id)
        ORDER BY j.created_at, j.id LIMIT max_jobs FOR UPDATE SKIP LOCKED);
    IF cardinality(dead_workers) + cardinality(lapsed_leases) > 0 THEN
        lost := ARRAY(
            SELECT j.id FROM faultline.jobs AS j
            WHERE j.state = 'running' AND (j.lease_owner = ANY (dead_workers) OR j.lease_id = ANY (lapsed_leases))
              AND j.id <> ALL (expired) -- SKIP LOCKED does not skip our own locks
            ORDER BY j.created_at LIMIT max_jobs - cardinality(expired) FOR UPDATE SKIP LOCKED);
    END IF;
    IF cardinality(expired || lost) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
        WITH held AS MATERIALIZED (
            SELECT j.id, j.queue, j.attempts, j.max_attempts, j.fencing_token, j.lease_owner, j.claimed_at,
                   CASE WHEN j.lease_owner = ANY (dead_workers) THEN 'worker_lost' ELSE 'expired' END AS cause
            FROM faultline.jobs AS j WHERE j.id = ANY (expired || lost)),
        logged AS (
            INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, claimed_at)
            SELECT h.id, h.attempts, h.fencing_token, left(h.lease_owner, 200), h.cause, h.claimed_at FROM held AS h),
        moved AS (
            UPDATE faultline.jobs AS j
            SET state = CASE WHEN h.attempts < h.max_attempts THEN 'queued' ELSE 'failed' END,
                failed_reason = CASE WHEN h.attempts >= h.max_attempts THEN 'poison' END,
                finished_at = CASE WHEN h.attempts >= h.max_attempts THEN clock_timestamp() END,
                crashes = j.crashes + 1, next_run_at = least(j.next_run_at, clock_timestamp()), -- the clock may have been set back
                last_error = format('worker %s stopped before attempt %s ended (%s)', left(h.lease_owner, 200), h.attempts, h.cause),
                lease_owner = NULL, lease_expires_at = NULL
            FROM held AS h WHERE j.id = h.id
            RETURNING j.id, j.state),
        woken AS (SELECT faultline.wake(h.queue, count(*)) FROM held AS h GROUP BY h.queue)
        SELECT h.id, h.fencing_token, h.lease_owner, h.attempts, m.state, h.cause
        FROM held AS h JOIN moved AS m ON m.id = h.id, (SELECT count(*) FROM woken) AS all_woken;
END $$;

-- ── After an outage ────────────────────────────────────────────────────────────────────────────────────────────────

-- Releases a job whose attempt ended because the server failed. The attempt does not count, but only five times per job (or
-- since an operator retried it): a statement of the job itself may crash the server, and such a job must fail in the end. The
-- beginning of the logged error tells these releases from others. A column for it would need a migration, and no other
-- function reads it.
CREATE OR REPLACE FUNCTION faultline.release_after_outage(job_id uuid, fencing_token bigint, lease_id uuid, error text)
RETURNS boolean -- false: released too often, and the caller still holds it
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    log_prefix CONSTANT text := 'the server failed: ';
    job faultline.jobs := faultline.lock_own(
        release_after_outage.job_id, release_after_outage.fencing_token, release_after_outage.lease_id);
BEGIN
    IF 5 <= (SELECT count(*) FROM faultline.attempts_log AS a
             WHERE a.job_id = job.id AND a.outcome = 'released' AND starts_with(a.error, log_prefix)
               AND a.id > coalesce((SELECT max(r.id) FROM faultline.attempts_log AS r
                                    WHERE r.job_id = job.id AND r.outcome = 'retried'), 0)) THEN
        RETURN false;
    END IF;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'released',
            left(log_prefix || coalesce(release_after_outage.error, ''), 10000), job.claimed_at);
    UPDATE faultline.jobs SET state = 'queued', attempts = attempts - 1, lease_owner = NULL, lease_expires_at = NULL,
                              next_run_at = least(next_run_at, clock_timestamp())
    WHERE id = job.id;
    PERFORM faultline.wake(job.queue);
    RETURN true;
END $$;

-- ── Sessions that keep a job locked ────────────────────────────────────────────────────────────────────────────────

-- The open transactions that lock this job's row, of sessions and prepared ones. The caller needs no privilege, because every
-- role can read pg_locks. A row's xmax is one transaction, or a multixact that stands for several, and the two kinds of number
-- look alike. If both readings lead to transactions that have locked our table, none is returned.
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
        members := '{}'; -- no such multixact: it is a transaction
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

-- Ends sessions that keep a job locked after its lease. For PostgreSQL, a client that froze in the middle of COPY FROM STDIN is
-- active, so idle_in_transaction_session_timeout does not end it. A session is ended only if it locks the row of a job whose
-- lease expired more than `grace` ago (at least a second), and has waited for its client for as long. One that computes is left
-- alone: it may be about to commit. Sessions that this function's owner may not see or end are returned, so that the caller
-- can try with its own account.
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
        ORDER BY j.created_at LIMIT max_jobs
    LOOP
        PERFORM FROM faultline.jobs AS j WHERE j.id = held.id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN FOUND; -- not locked: the next reconcile requeues it
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

-- ── A clock that was set back ──────────────────────────────────────────────────────────────────────────────────────

-- How far the newest recorded times are ahead of the clock: more than a moment only after the clock was set back, or on a
-- promoted server whose clock is behind.
CREATE OR REPLACE FUNCTION faultline.clock_setback() RETURNS interval
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest((SELECT j.created_at FROM faultline.jobs AS j ORDER BY j.id DESC LIMIT 1),
                    (SELECT a.ended_at FROM faultline.attempts_log AS a ORDER BY a.id DESC LIMIT 1),
                    (SELECT max(w.last_heartbeat_at) FROM faultline.workers AS w),
                    here.moment) - here.moment
    FROM (SELECT clock_timestamp() AS moment) AS here
$$;

-- Reschedules queued jobs whose time was computed before the clock was set back: jobs enqueued to run at once, and jobs that wait
-- for another attempt. They are recognised by a created_at or claimed_at in the future. The first become due now, in the order
-- of their ids; the others after at most the delay that they had. A run_at that a producer asked for stays. Each call reads one
-- page of the index of queued jobs; `next` is where to continue, null at the end.
CREATE OR REPLACE FUNCTION faultline.reschedule_stranded(after jsonb DEFAULT NULL, page_size integer DEFAULT 10000)
RETURNS TABLE (jobs integer, next jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    moment   timestamptz := clock_timestamp();
    stranded uuid[];
    seen     integer;
BEGIN
    IF (page_size BETWEEN 1 AND 100000) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot read pages of % jobs', page_size USING ERRCODE = 'FL005', HINT = 'page_size is 1 to 100000.';
    END IF;
    SELECT count(*), array_agg(p.id) FILTER (WHERE p.is_stranded), (array_agg(p.index_position ORDER BY p.ordinal DESC))[1]
    INTO seen, stranded, next
    FROM (SELECT j.id, row_number() OVER () AS ordinal,
                 jsonb_build_array(j.queue, j.priority, j.next_run_at, j.id) AS index_position,
                 j.next_run_at > moment
                 AND (j.claimed_at > moment OR (j.claimed_at IS NULL AND j.created_at > moment AND j.next_run_at <= j.created_at))
                 -- A waiting job is due already, when it may start (places.sql).
                 AND NOT (j.limited AND EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.job_id = j.id))
                 AS is_stranded
          FROM (SELECT * FROM faultline.jobs AS q
                WHERE q.state = 'queued' AND (after IS NULL OR (q.queue, q.priority, q.next_run_at, q.id)
                      > (after ->> 0, (after ->> 1)::smallint, (after ->> 2)::timestamptz, (after ->> 3)::uuid))
                ORDER BY q.queue, q.priority, q.next_run_at, q.id LIMIT page_size) AS j) AS p;
    IF seen < page_size THEN
        next := NULL;
    END IF;
    WITH moved AS (
        UPDATE faultline.jobs AS j
        SET next_run_at = moment + CASE WHEN j.claimed_at IS NULL THEN interval '0' ELSE j.next_run_at - j.claimed_at END
        WHERE j.id = ANY (ARRAY(SELECT q.id FROM faultline.jobs AS q WHERE q.id = ANY (stranded) ORDER BY q.id FOR UPDATE SKIP LOCKED))
          AND j.state = 'queued' AND j.next_run_at > moment
        RETURNING j.queue),
    woken AS (SELECT faultline.wake(m.queue, count(*)) FROM moved AS m GROUP BY m.queue)
    SELECT count(*) INTO jobs FROM moved, (SELECT count(*) FROM woken) AS all_woken;
    RETURN NEXT;
END $$;
