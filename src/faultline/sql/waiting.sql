-- Jobs that wait: how they are enqueued, where claims look for them, which are deferred, and which can never be claimed.
-- Nothing here ends a lease but defer_many and release_after_outage, and both are fenced like release.

-- ── Producers ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- Safe because the unique index decides who was first: a second caller with the same key waits for the first one's
-- transaction, then finds its job. Payloads are compared as jsonb, where 1 and 1.0, and any order of keys, are equal.
CREATE OR REPLACE FUNCTION faultline.enqueue_many(
    task text, payloads jsonb[], queue text DEFAULT 'default', priority integer DEFAULT 5,
    run_at timestamptz DEFAULT NULL, idempotency_keys text[] DEFAULT NULL, max_attempts integer DEFAULT 10,
    trace_context text DEFAULT NULL)
RETURNS TABLE (job_id uuid, existing boolean) -- in the order of the payloads
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    ids        uuid[] := ARRAY(SELECT faultline.uuid7(t.moment) FROM (
                            SELECT clock_timestamp() AS moment FROM generate_series(1, cardinality(payloads))) AS t);
    task_name  faultline.task_name := task; -- checked once, not for every row
    queue_name faultline.queue_name := queue;
    other      record;
BEGIN
    IF cardinality(idempotency_keys) <> cardinality(payloads) THEN
        RAISE EXCEPTION '% payloads but % idempotency keys', cardinality(payloads), cardinality(idempotency_keys)
            USING ERRCODE = 'FL005', HINT = 'Give one key for each payload, NULL where there is none.';
    END IF;
    IF idempotency_keys IS NULL THEN -- there can be no conflict, and looking for one costs a fifth of an insert
        INSERT INTO faultline.jobs (id, task, queue, priority, max_attempts, payload, next_run_at, trace_context)
        SELECT given.id, task_name, queue_name, enqueue_many.priority, enqueue_many.max_attempts,
               given.payload, coalesce(run_at, clock_timestamp()), enqueue_many.trace_context
        FROM unnest(ids, payloads) AS given (id, payload);
        RETURN QUERY SELECT id, false FROM unnest(ids) AS id;
    ELSE -- in the order of the keys: two callers with the same keys in opposite orders would wait for each other
        INSERT INTO faultline.jobs
            (id, task, queue, priority, max_attempts, payload, next_run_at, trace_context, idempotency_key)
        SELECT given.id, task_name, queue_name, enqueue_many.priority, enqueue_many.max_attempts,
               given.payload, coalesce(run_at, clock_timestamp()), enqueue_many.trace_context, given.key
        FROM unnest(ids, payloads, idempotency_keys) WITH ORDINALITY AS given (id, payload, key, ordinal)
        ORDER BY given.key, given.ordinal
        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
        SELECT given.key, j.id INTO other
        FROM unnest(payloads, idempotency_keys) AS given (payload, key)
        LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key
        WHERE given.key IS NOT NULL AND (j.task = enqueue_many.task AND j.payload = given.payload) IS NOT TRUE LIMIT 1;
        IF FOUND AND other.id IS NULL THEN -- the job that held the key was purged between the two statements
            RAISE EXCEPTION 'idempotency key % was freed meanwhile', other.key USING ERRCODE = 'serialization_failure';
        ELSIF FOUND THEN
            RAISE EXCEPTION 'idempotency key % belongs to another task or payload', quote_literal(other.key) USING
                ERRCODE = 'FL004', DETAIL = json_build_object('job_id', CASE WHEN other.id <> ALL (ids) THEN other.id END)::text,
                HINT = 'Use a new key for new work, or send exactly what was sent before.';
        END IF;
        RETURN QUERY
            SELECT coalesce(j.id, given.id), j.id IS NOT NULL AND j.id <> given.id
            FROM unnest(ids, idempotency_keys) WITH ORDINALITY AS given (id, key, ordinal)
            LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key ORDER BY given.ordinal;
    END IF;
    IF coalesce(run_at <= clock_timestamp(), true) THEN
        PERFORM faultline.wake(enqueue_many.queue);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION faultline.enqueue(
    task text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 5,
    run_at timestamptz DEFAULT NULL, idempotency_key text DEFAULT NULL, max_attempts integer DEFAULT 10,
    trace_context text DEFAULT NULL)
RETURNS TABLE (job_id uuid, existing boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM faultline.enqueue_many(task, ARRAY[payload], queue, priority, run_at,
        CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END, max_attempts, trace_context);
END $$;

-- ── Lanes ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The lanes (queue and priority) of these queues that hold queued jobs. For claims over many queues: it goes from one lane to the
-- next, however many jobs lie between, so it costs what the non-empty lanes cost and empty queues cost nothing. When so many
-- lanes of other queues lie between that looking into each lane of these queues is cheaper, it returns all of them.
CREATE OR REPLACE FUNCTION faultline.lanes_of(queues text[], OUT lane_queues text[], OUT lane_priorities integer[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_lanes bigint := 5 * cardinality(queues)::bigint;
BEGIN
    WITH RECURSIVE lane (queue, priority) AS (
        (SELECT j.queue::text, j.priority FROM faultline.jobs AS j WHERE j.state = 'queued'
         ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1)
        UNION ALL
        SELECT n.queue, n.priority
        FROM lane AS l
        CROSS JOIN LATERAL (
            SELECT j.queue::text AS queue, j.priority FROM faultline.jobs AS j
            WHERE j.state = 'queued' AND (j.queue, j.priority) > (l.queue, l.priority)
            ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1) AS n)
    SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}') INTO lane_queues, lane_priorities
    FROM (SELECT * FROM lane LIMIT max_lanes + 1) AS l;
    IF cardinality(lane_queues) > max_lanes THEN
        SELECT array_agg(q.queue), array_agg(p.priority) INTO lane_queues, lane_priorities
        FROM unnest(queues) AS q (queue), generate_series(0, 9) AS p (priority);
    ELSIF cardinality(lane_queues) <= 16 THEN -- building a hash table of all the names would cost more
        SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}') INTO lane_queues, lane_priorities
        FROM unnest(lane_queues, lane_priorities) AS l (queue, priority) WHERE l.queue = ANY (queues);
    ELSE
        SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}') INTO lane_queues, lane_priorities
        FROM unnest(lane_queues, lane_priorities) AS l (queue, priority)
        WHERE l.queue IN (SELECT q.queue FROM unnest(queues) AS q (queue));
    END IF;
END $$;

-- ── Deferred jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

-- For jobs that the caller has claimed and cannot run because it does not know their task. The attempt is given back. The job is
-- due again after retry_in, for any worker; one that names the task in its claim gets it at once. Spread by a tenth, so that
-- a million jobs do not come due together. Safe because each row is locked before it is judged, as in release.
CREATE OR REPLACE FUNCTION faultline.defer_many(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], retry_in interval DEFAULT '1 minute', reason text DEFAULT NULL)
RETURNS TABLE (job_id uuid) -- the deferred ones; the caller does not hold the others any more
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    held uuid[] := ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id FOR UPDATE);
BEGIN
    RETURN QUERY
        WITH own AS MATERIALIZED (
            SELECT j.id, j.task, j.queue, j.next_run_at, j.attempts, j.fencing_token, j.lease_owner, j.claimed_at
            FROM unnest(job_ids, fencing_tokens, lease_ids) AS mine (job_id, token, lease_id)
            JOIN faultline.jobs AS j ON j.id = mine.job_id
            WHERE j.id = ANY (held)
              AND coalesce(faultline.fence_violation(j, mine.token, mine.lease_id), 'lease_expired') = 'lease_expired'),
        logged AS (
            INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
            SELECT o.id, o.attempts, o.fencing_token, o.lease_owner, 'released', left(reason, 10000), o.claimed_at FROM own AS o),
        listed AS (
            INSERT INTO faultline.deferred_jobs AS d (job_id, task, queue, due_at, worker)
            SELECT o.id, o.task, o.queue, least(o.next_run_at, clock_timestamp()), o.lease_owner FROM own AS o
            ON CONFLICT (job_id) DO UPDATE
            SET due_at = least(d.due_at, excluded.due_at), worker = excluded.worker, deferred_at = excluded.deferred_at),
        moved AS (
            UPDATE faultline.jobs AS j
            SET state = 'queued', attempts = j.attempts - 1, lease_owner = NULL, lease_expires_at = NULL,
                next_run_at = clock_timestamp() + retry_in * (1 + random() / 10)
            FROM own AS o WHERE j.id = o.id
            RETURNING j.id),
        woken AS (SELECT faultline.wake(q.queue) FROM (SELECT DISTINCT o.queue FROM own AS o) AS q)
        SELECT m.id FROM moved AS m, (SELECT count(*) FROM woken) AS all_woken;
END $$;

-- For an attempt that ended because the server failed. The attempt is given back, at most five times for one job (until an
-- operator retries it): a statement of the job's own may be what brings the server down, and such a job must come to an end.
CREATE OR REPLACE FUNCTION faultline.release_after_outage(job_id uuid, fencing_token bigint, lease_id uuid, error text)
RETURNS boolean -- false: it was given back too often, and the caller still holds it
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_own(
        release_after_outage.job_id, release_after_outage.fencing_token, release_after_outage.lease_id);
BEGIN
    IF 5 <= (SELECT count(*) FROM faultline.attempts_log AS a
             WHERE a.job_id = job.id AND a.outcome = 'released' AND a.error LIKE 'the server failed: %'
               AND a.id > coalesce((SELECT max(r.id) FROM faultline.attempts_log AS r
                                    WHERE r.job_id = job.id AND r.outcome = 'retried'), 0)) THEN
        RETURN false;
    END IF;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'released',
            left('the server failed: ' || coalesce(release_after_outage.error, ''), 10000), job.claimed_at);
    UPDATE faultline.jobs SET state = 'queued', attempts = attempts - 1, lease_owner = NULL, lease_expires_at = NULL,
                              next_run_at = least(next_run_at, clock_timestamp())
    WHERE id = job.id;
    PERFORM faultline.wake(job.queue);
    RETURN true;
END $$;

-- Deferred jobs of these queues whose task the caller knows are due again, from when they were due before. Part of a claim,
-- so it takes no more than the claim wants. It goes from one pair of task and queue to the next, like lanes_of.
CREATE OR REPLACE FUNCTION faultline.recall_deferred(queues text[], tasks text[], max_jobs integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH RECURSIVE kind (task, queue) AS (
        (SELECT d.task, d.queue FROM faultline.deferred_jobs AS d ORDER BY d.task, d.queue, d.due_at, d.job_id LIMIT 1)
        UNION ALL
        SELECT n.task, n.queue
        FROM kind AS k
        CROSS JOIN LATERAL (
            SELECT d.task, d.queue FROM faultline.deferred_jobs AS d
            WHERE (d.task, d.queue) > (k.task, k.queue)
            ORDER BY d.task, d.queue, d.due_at, d.job_id LIMIT 1) AS n),
    gone AS (
        DELETE FROM faultline.deferred_jobs AS d WHERE d.job_id = ANY (ARRAY(
            SELECT e.job_id
            FROM (SELECT * FROM kind LIMIT 1000) AS k
            CROSS JOIN LATERAL (
                SELECT w.job_id FROM faultline.deferred_jobs AS w WHERE w.task = k.task AND w.queue = k.queue
                ORDER BY w.task, w.queue, w.due_at, w.job_id LIMIT max_jobs FOR UPDATE SKIP LOCKED) AS e
            WHERE k.task = ANY (tasks) AND k.queue = ANY (queues)
            LIMIT max_jobs))
        RETURNING d.job_id, d.due_at)
    UPDATE faultline.jobs AS j SET next_run_at = g.due_at
    FROM gone AS g
    WHERE j.id = g.job_id AND j.state = 'queued' AND j.next_run_at > g.due_at;
END $$;

-- ── Jobs that no claim can take ────────────────────────────────────────────────────────────────────────────────────

-- What a claim takes of the jobs that it has found and locked: as many, in their order, as the limit on the payloads' text allows,
-- and the first in any case. A job that no claim can ever take fails, alone: its token has reached the end of its epoch's range
-- (epoch.sql), or the text of its payload is longer than a client can be sent. `faultline.sifted` tells the claim.
CREATE OR REPLACE FUNCTION faultline.sift(candidates uuid[], epoch bigint, max_bytes bigint) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen   uuid[];
    hopeless uuid[];
    reasons  text[];
BEGIN
    SELECT array_agg(f.id) FILTER (WHERE f.reason IS NULL AND f.before < max_bytes),
           array_agg(f.id) FILTER (WHERE f.reason IS NOT NULL), array_agg(f.reason) FILTER (WHERE f.reason IS NOT NULL)
    INTO chosen, hopeless, reasons
    FROM (SELECT r.id, r.bytes, r.reason,
                 sum(CASE WHEN r.reason IS NULL THEN r.bytes ELSE 0 END) OVER (ORDER BY r.ordinal) - r.bytes AS before
          FROM (SELECT t.id, t.bytes, t.ordinal,
                       CASE WHEN t.fencing_token >= epoch AND t.fencing_token & 4194303 = 4194303 THEN 'token_spent'
                            WHEN t.bytes > 268435456 THEN 'unreadable' END AS reason
                FROM (SELECT j.id, j.fencing_token, faultline.json_text_bound(j.payload) AS bytes, g.ordinal
                      FROM unnest(candidates) WITH ORDINALITY AS g (id, ordinal)
                      JOIN faultline.jobs AS j ON j.id = g.id) AS t) AS r) AS f;
    IF hopeless IS NOT NULL THEN
        WITH bad AS MATERIALIZED (
            SELECT b.id, b.reason, CASE b.reason
                       WHEN 'token_spent' THEN 'its fencing token has reached the end of its range: enqueue the job anew'
                       ELSE 'the text of its payload is too long to be sent to a worker: enqueue a smaller payload' END AS error
            FROM unnest(hopeless, reasons) AS b (id, reason)),
        logged AS (
            INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, error)
            SELECT j.id, j.attempts, j.fencing_token, 'failed', b.error
            FROM bad AS b JOIN faultline.jobs AS j ON j.id = b.id)
        UPDATE faultline.jobs AS j
        SET state = 'failed', failed_reason = b.reason, last_error = b.error, finished_at = clock_timestamp()
        FROM bad AS b WHERE j.id = b.id;
    END IF;
    PERFORM set_config('faultline.sifted', CASE WHEN cardinality(chosen) = cardinality(candidates) THEN '' ELSE 'on' END, true);
    RETURN chosen;
END $$;

-- ── A clock that was set back ──────────────────────────────────────────────────────────────────────────────────────

-- How far the newest times on record lie ahead of the clock: more than a moment only after the clock was set back, or on a
-- promoted server whose clock is behind.
CREATE OR REPLACE FUNCTION faultline.clock_setback() RETURNS interval
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest((SELECT j.created_at FROM faultline.jobs AS j ORDER BY j.id DESC LIMIT 1),
                    (SELECT a.ended_at FROM faultline.attempts_log AS a ORDER BY a.id DESC LIMIT 1),
                    (SELECT max(w.last_heartbeat_at) FROM faultline.workers AS w),
                    here.moment) - here.moment
    FROM (SELECT clock_timestamp() AS moment) AS here
$$;

-- Queued jobs whose time was computed from a clock that has been set back since: those that were enqueued to run at once, and
-- those that wait for another attempt. They were enqueued or claimed at times that are yet to come, which gives them
-- away. The first are due now, in the order of their ids; the others after as long as they had to wait at most. A time that a
-- producer has asked for stays. One page of the index of queued jobs per call; `next` says where to go on, null at the end.
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
        RAISE EXCEPTION 'cannot look at % jobs at a time', page_size USING ERRCODE = 'FL005', HINT = 'page_size is 1 to 100000.';
    END IF;
    SELECT count(*), array_agg(p.id) FILTER (WHERE p.is_stranded), (array_agg(p.place ORDER BY p.ordinal DESC))[1]
    INTO seen, stranded, next
    FROM (SELECT j.id, row_number() OVER () AS ordinal,
                 jsonb_build_array(j.queue, j.priority, j.next_run_at, j.id) AS place,
                 j.next_run_at > moment
                 AND (j.claimed_at > moment OR (j.claimed_at IS NULL AND j.created_at > moment AND j.next_run_at <= j.created_at))
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
    woken AS (SELECT faultline.wake(q.queue) FROM (SELECT DISTINCT m.queue FROM moved AS m) AS q)
    SELECT count(*) INTO jobs FROM moved, (SELECT count(*) FROM woken) AS all_woken;
    RETURN NEXT;
END $$;
