-- Parts of a claim: which lanes it searches, which of the found jobs it claims, and jobs that were deferred for other workers.
-- Of these functions only defer_many ends a lease, and it is fenced like release.

-- ── Lanes ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The lanes of these queues that hold queued jobs, for claims over many queues. A lane is a queue and a priority. The function
-- reads one index entry for each non-empty lane of all queues. If there are so many that searching every lane of these queues
-- costs less, it stops and returns all lanes of these queues.
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
        SELECT l.lane_queues, l.lane_priorities INTO lane_queues, lane_priorities FROM faultline.all_lanes(queues) AS l;
    ELSIF cardinality(lane_queues) <= 16 THEN -- building a hash table of all the names would cost more
        SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}') INTO lane_queues, lane_priorities
        FROM unnest(lane_queues, lane_priorities) AS l (queue, priority) WHERE l.queue = ANY (queues);
    ELSE
        SELECT coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}') INTO lane_queues, lane_priorities
        FROM unnest(lane_queues, lane_priorities) AS l (queue, priority)
        WHERE l.queue IN (SELECT q.queue FROM unnest(queues) AS q (queue));
    END IF;
END $$;

-- All lanes of these queues.
CREATE OR REPLACE FUNCTION faultline.all_lanes(queues text[], OUT lane_queues text[], OUT lane_priorities integer[])
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(q.queue), array_agg(p.priority) FROM unnest(queues) AS q (queue), generate_series(0, 9) AS p (priority)
$$;

-- The queues and tasks that have limits, of any kind. No row if there is no limit at all.
CREATE OR REPLACE FUNCTION faultline.limited_names(OUT queues text[], OUT tasks text[]) RETURNS SETOF record
LANGUAGE sql STABLE AS $$
    SELECT array_agg(substr(l.name, 7)) FILTER (WHERE starts_with(l.name, 'queue:')),
           array_agg(substr(l.name, 6)) FILTER (WHERE starts_with(l.name, 'task:'))
           || (SELECT array_agg(a.task::text) FROM faultline.limit_arguments AS a)
    FROM faultline.limits AS l HAVING count(*) > 0
$$;

-- ── Jobs that can never be claimed ─────────────────────────────────────────────────────────────────────────────────

-- Returns those of the locked candidates that the claim takes: in their order, as many as the limit on the text of all payloads
-- allows, and at least the first. Fails a candidate that can never be claimed: its token has reached the end of its epoch's
-- range (epoch.sql), the text of its payload is too long to send, or it has expired. Jobs whose limits are reached wait (admit in
-- places.sql). It sets faultline.claim_reduced, which claim reads: 'none' if it returns all jobs, 'bytes' if the next look would find
-- the same jobs again, else 'others'.
CREATE OR REPLACE FUNCTION faultline.select_claimable(candidates uuid[], epoch bigint, max_bytes bigint) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen      uuid[];
    unclaimable uuid[];
    reasons     text[];
    reduced     text := 'none';
BEGIN
    SELECT array_agg(f.id) FILTER (WHERE f.reason IS NULL AND f.before < max_bytes),
           array_agg(f.id) FILTER (WHERE f.reason IS NOT NULL), array_agg(f.reason) FILTER (WHERE f.reason IS NOT NULL)
    INTO chosen, unclaimable, reasons
    FROM (SELECT r.id, r.bytes, r.reason,
                 sum(CASE WHEN r.reason IS NULL THEN r.bytes ELSE 0 END) OVER (ORDER BY r.ordinal) - r.bytes AS before
          FROM (SELECT t.id, t.bytes, t.ordinal,
                       CASE WHEN t.fencing_token >= epoch AND t.fencing_token & 4194303 = 4194303 THEN 'token_spent'
                            WHEN t.bytes > 268435456 THEN 'unreadable'
                            WHEN t.attempts = 0 AND t.expires_at <= statement_timestamp() THEN 'expired' END AS reason
                FROM (SELECT j.id, j.fencing_token, j.attempts, j.expires_at, faultline.json_text_bound(j.payload) AS bytes, g.ordinal
                      FROM unnest(candidates) WITH ORDINALITY AS g (id, ordinal)
                      JOIN faultline.jobs AS j ON j.id = g.id) AS t) AS r) AS f;
    IF unclaimable IS NOT NULL THEN
        PERFORM faultline.fail_unclaimable(unclaimable, reasons);
        PERFORM faultline.report_unclaimable(unclaimable);
    END IF;
    IF coalesce(cardinality(chosen), 0) + coalesce(cardinality(unclaimable), 0) < cardinality(candidates) THEN
        reduced := 'bytes';
    END IF;
    IF chosen IS NOT NULL THEN
        chosen := faultline.admit(chosen);
    END IF;
    IF reduced = 'none' AND coalesce(cardinality(chosen), 0) < cardinality(candidates) THEN
        reduced := 'others';
    END IF;
    PERFORM set_config('faultline.claim_reduced', reduced, true);
    RETURN chosen;
END $$;

-- Fails queued jobs that the caller has locked, each for its reason.
CREATE OR REPLACE FUNCTION faultline.fail_unclaimable(job_ids uuid[], reasons text[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH explained AS MATERIALIZED (
        SELECT b.id, b.reason, CASE b.reason
                   WHEN 'token_spent' THEN 'its fencing token has reached the end of its range: enqueue a new job'
                   WHEN 'expired' THEN 'it had not started when it expired'
                   ELSE 'the text of its payload is too long to be sent to a worker: enqueue a smaller payload' END AS error
        FROM unnest(job_ids, reasons) AS b (id, reason)),
    logged AS (
        INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, error)
        SELECT j.id, j.attempts, j.fencing_token, 'failed', e.error
        FROM explained AS e JOIN faultline.jobs AS j ON j.id = e.id)
    UPDATE faultline.jobs AS j
    SET state = 'failed', failed_reason = e.reason, last_error = e.error, finished_at = clock_timestamp()
    FROM explained AS e WHERE j.id = e.id
$$;

-- Tells the client whose claim has failed these jobs, which the claim does not return: a notice with a JSON list of them.
CREATE OR REPLACE FUNCTION faultline.report_unclaimable(job_ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = notice AS $$
BEGIN
    RAISE NOTICE '% jobs that can never be claimed have failed', cardinality(job_ids) USING ERRCODE = '01FL1', DETAIL = (
        SELECT json_agg(json_build_object('job_id', j.id, 'task', j.task, 'token', j.fencing_token, 'attempt', j.attempts,
                                          'reason', j.failed_reason))::text
        FROM faultline.jobs AS j WHERE j.id = ANY (job_ids));
END $$;

-- Fails expired jobs that no claim has met, because no worker serves their queue. The leading reconciler calls it. Safe
-- because it changes only queued rows that it has locked, and skips those that a claim holds.
CREATE OR REPLACE FUNCTION faultline.fail_expired(max_jobs integer DEFAULT 1000) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    expired uuid[] := ARRAY(
        SELECT j.id FROM faultline.jobs AS j
        WHERE j.state = 'queued' AND j.expires_at <= statement_timestamp() AND j.attempts = 0
        ORDER BY j.expires_at LIMIT max_jobs FOR UPDATE SKIP LOCKED);
BEGIN
    IF cardinality(expired) > 0 THEN
        PERFORM faultline.fail_unclaimable(expired, array_fill('expired'::text, ARRAY[cardinality(expired)]));
    END IF;
    RETURN QUERY SELECT unnest(expired);
END $$;

-- ── Deferred jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

-- Defers jobs that the caller has claimed and cannot run, because it does not know their task. The attempt does not count. The
-- job is due again after retry_in for any worker, and at once for a worker that names the task in its claim. Each delay is
-- lengthened by up to a tenth, so that a million jobs are not due together. Safe because each row is locked, then checked.
CREATE OR REPLACE FUNCTION faultline.defer_many(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], retry_in interval DEFAULT '1 minute', reason text DEFAULT NULL)
RETURNS TABLE (job_id uuid) -- of the deferred jobs; the caller no longer holds the others
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
              AND faultline.is_holder(j, mine.token, mine.lease_id)),
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
                next_run_at = clock_timestamp() + faultline.checked_delay(retry_in) * (1 + random() / 10)
            FROM own AS o WHERE j.id = o.id
            RETURNING j.id),
        woken AS (SELECT faultline.wake(o.queue, count(*)) FROM own AS o GROUP BY o.queue)
        SELECT m.id FROM moved AS m, (SELECT count(*) FROM woken) AS all_woken;
END $$;

-- Makes deferred jobs of these queues and tasks due again, at their former time. A claim calls it for at most as many jobs as it
-- asks for. Like lanes_of, it reads one index entry for each pair of task and queue.
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
    removed AS (
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
    FROM removed AS g
    WHERE j.id = g.job_id AND j.state = 'queued' AND j.next_run_at > g.due_at
      AND NOT (j.limited AND j.next_run_at > faultline.parked_after()); -- it was claimed since, and waits in a line (places.sql)
END $$;
