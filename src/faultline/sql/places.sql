-- Places: which of the due jobs may start under their limits, and which of them wait.
--
-- A limit of concurrency is exact because the database counts: a claim locks the row of each limit key (limit_states), counts the
-- places that running jobs have (places), and inserts places for the jobs that it starts, in one transaction. The end of a lease
-- deletes the job's places in the transaction that ends it (free_places). A rate is one time per limit key, by the database's
-- clock: the time from which the next job may start (the generic cell rate algorithm, a token bucket without a timer).
-- Jobs that may not start wait in waiting_jobs, out of the range that claims read, so a long line for one key costs the claims of
-- other jobs nothing. An end of a lease lets the next job of that key into the range again. If that is lost, repair_limits
-- (limits.sql) does it within a second or two.
-- Exact at READ COMMITTED, at which workers claim.
--
-- Locks are taken in one order: rows of jobs; then limit keys, sorted; then places and waiting_jobs. The lock of a job's row is also
-- the lock of its row in waiting_jobs: every function that inserts, changes or deletes such a row has locked the job, and judges the
-- row by a statement that begins after it has the lock. So none waits for a row of waiting_jobs. What does not claim waits for no
-- limit key either: it skips locked ones.

-- How much later than its due_at a waiting job stands in jobs: 1,000 years, as plain hours.
CREATE OR REPLACE FUNCTION faultline.parked_for() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '8766000 hours' $$;

-- Every waiting job stands later than this, 800 years ahead: one that was due for longer than 100 years is treated as due for 100. Of the jobs
-- that limits have applied to (limited), only waiting ones do: all other delays last 100 years at most.
CREATE OR REPLACE FUNCTION faultline.parked_after() RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT statement_timestamp() + faultline.parked_for() - interval '1753200 hours' $$;

-- Whether a row of waiting_jobs that was due at this time is of this job. A join with `state = 'queued'` itself may be planned as a
-- scan of jobs_due, while the planner believes that few jobs are queued; coalesce hides the condition from it.
CREATE OR REPLACE FUNCTION faultline.is_parked(job faultline.jobs, due_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(job.state = 'queued' AND job.next_run_at = due_at + faultline.parked_for(), false)
$$;

-- The limits that apply to a job, with its key under each. The key of a limit of the kind 'key' comes from the payload, so it does not
-- matter which program enqueued the job.
CREATE OR REPLACE FUNCTION faultline.limits_of(job faultline.jobs) RETURNS TABLE (limit_key text, name text, max_running integer)
LANGUAGE sql STABLE AS $$
    SELECT l.name::text, l.name::text, l.max_running FROM faultline.limits AS l
    WHERE l.name = ANY (ARRAY['queue:' || job.queue, 'task:' || job.task])
    UNION ALL
    SELECT l.name || '=' || CASE WHEN length(k.value) <= 200 THEN k.value
                                 ELSE 'sha256:' || encode(sha256(convert_to(k.value, 'UTF8')), 'hex') END, l.name, l.max_running
    FROM faultline.limit_arguments AS a
    CROSS JOIN LATERAL (SELECT coalesce(job.payload ->> a.argument, a.fallback) AS value) AS k
    JOIN faultline.limits AS l ON l.name = a.limit_name
    WHERE a.task = job.task AND k.value IS NOT NULL
$$;

-- ── Starting ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- Those of a claim's locked candidates that may start now, in their order; the others wait from now on. The caller starts all
-- that are returned, in the same transaction. Safe because each limit key is locked before its places are counted, and stays
-- locked until the claim commits. A claim waits for another one a moment at most, and only before it has locked a key itself:
-- a session that stalls in the middle of a claim delays the jobs of its keys, not the jobs of others.
CREATE OR REPLACE FUNCTION faultline.admit(candidates uuid[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    keys        text[];
    locked_keys text[];
    room        bigint[]; -- how many more jobs of each key may start; -1: another claim has locked the key
    moment      timestamptz;
    job         record;
    place       integer;
    full_place  integer;
    admitted    uuid[] := '{}';
    waiting     uuid[] := '{}';
    waits_for   text[] := '{}';
BEGIN
    keys := ARRAY(SELECT DISTINCT a.limit_key COLLATE "C" FROM faultline.jobs AS j, faultline.limits_of(j) AS a
                  WHERE j.id = ANY (candidates) ORDER BY 1);
    IF keys = '{}' THEN
        RETURN candidates;
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'jobs under limits cannot be claimed at %', current_setting('transaction_isolation')
            USING ERRCODE = 'FL005', HINT = 'Claim at READ COMMITTED.';
    END IF;
    locked_keys := faultline.lock_limit_keys(keys);
    moment := clock_timestamp();
    room := ARRAY(
        SELECT CASE WHEN k.key <> ALL (locked_keys) THEN -1
                    ELSE faultline.room_of(k.key, s, l, moment) END
        FROM unnest(keys) WITH ORDINALITY AS k (key, ordinal)
        JOIN faultline.limits AS l ON l.name = split_part(k.key, '=', 1)
        LEFT JOIN faultline.limit_states AS s ON s.limit_key = k.key
        ORDER BY k.ordinal);
    FOR job IN
        SELECT c.id, array_agg(array_position(keys, a.limit_key)) FILTER (WHERE a.limit_key IS NOT NULL) AS places
        FROM unnest(candidates) WITH ORDINALITY AS c (id, ordinal)
        JOIN faultline.jobs AS j ON j.id = c.id LEFT JOIN LATERAL faultline.limits_of(j) AS a ON true
        GROUP BY c.id, c.ordinal ORDER BY c.ordinal
    LOOP
        full_place := NULL;
        FOREACH place IN ARRAY coalesce(job.places, '{}') LOOP
            full_place := CASE WHEN room[place] <= 0 THEN place ELSE full_place END;
        END LOOP;
        IF full_place IS NULL THEN
            admitted := admitted || job.id;
            FOREACH place IN ARRAY coalesce(job.places, '{}') LOOP
                room[place] := room[place] - 1;
            END LOOP;
        ELSE
            waiting := waiting || job.id;
            waits_for := waits_for || keys[full_place];
        END IF;
    END LOOP;
    PERFORM faultline.take_places(admitted, moment);
    IF waiting <> '{}' THEN
        PERFORM faultline.park(waiting, waits_for, locked_keys, admitted);
    END IF;
    FOR place IN 1..cardinality(keys) LOOP -- jobs that waited, if there is room left
        IF room[place] > 0 THEN
            PERFORM faultline.unpark(keys[place], room[place]::integer);
        END IF;
    END LOOP;
    PERFORM faultline.wake_later(locked_keys, moment);
    RETURN admitted;
END $$;

-- How many more jobs of a key may start now, by its places and its rate. Exact in a statement that begins after the key was locked.
CREATE OR REPLACE FUNCTION faultline.room_of(
    key text, state faultline.limit_states, of_limit faultline.limits, moment timestamptz)
RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN greatest(0, least(
        of_limit.max_running - (SELECT count(*) FROM faultline.places AS p WHERE p.limit_key = key),
        faultline.startable(state, of_limit, moment), 1000000));
END $$;

-- How many jobs may start at once under the rate of this limit; null without a rate.
CREATE OR REPLACE FUNCTION faultline.startable(state faultline.limit_states, of_limit faultline.limits, moment timestamptz)
RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN of_limit.rate_jobs IS NULL THEN NULL
                WHEN state.next_start_at IS NULL OR state.next_start_at = '-infinity' THEN of_limit.burst
                WHEN state.next_start_at > moment THEN 0
                ELSE least(of_limit.burst, 1 + floor(extract(epoch FROM moment - state.next_start_at)
                                                     * of_limit.rate_jobs / of_limit.rate_seconds)) END::bigint
$$;

-- Locks these keys, which are sorted, for the transaction, and returns those that it has locked. The first call of a transaction
-- waits for other claims, but not long. A later call hardly waits, because two claims could wait for each other.
-- repair_limits deletes the rows of idle keys, so a row that an earlier statement has seen may be gone: only a row that this call has
-- inserted or locked counts. DO UPDATE does one of the two for each key, even though its condition never allows the change.
CREATE OR REPLACE FUNCTION faultline.lock_limit_keys(keys text[]) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    mark     text := pg_current_xact_id()::text;
    is_first boolean := current_setting('faultline.has_limit_keys', true) IS DISTINCT FROM mark;
    former   text := current_setting('lock_timeout');
    ignored  text := set_config('faultline.has_limit_keys', mark, true);
BEGIN
    BEGIN
        ignored := set_config('lock_timeout', CASE WHEN is_first THEN '50ms' ELSE '1ms' END, true);
        IF is_first THEN
            INSERT INTO faultline.limit_states AS s (limit_key) SELECT k FROM unnest(keys) AS k
            ON CONFLICT (limit_key) DO UPDATE SET is_awaited = s.is_awaited WHERE false;
        ELSE
            INSERT INTO faultline.limit_states (limit_key) SELECT k FROM unnest(keys) AS k
            WHERE NOT EXISTS (SELECT FROM faultline.limit_states AS s WHERE s.limit_key = k) ON CONFLICT DO NOTHING;
        END IF;
        ignored := set_config('lock_timeout', former, true);
        IF is_first THEN
            RETURN keys;
        END IF;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        NULL; -- rolled back, with the setting
    END;
    RETURN ARRAY(SELECT s.limit_key FROM faultline.limit_states AS s WHERE s.limit_key = ANY (keys)
                 ORDER BY s.limit_key FOR NO KEY UPDATE SKIP LOCKED);
END $$;

-- Gives places to jobs that start, and counts them towards the rates of their limits.
CREATE OR REPLACE FUNCTION faultline.take_places(job_ids uuid[], moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    keys   text[];
    starts bigint[];
BEGIN
    INSERT INTO faultline.places (limit_key, job_id)
    SELECT a.limit_key, j.id FROM faultline.jobs AS j, faultline.limits_of(j) AS a
    WHERE j.id = ANY (job_ids) AND a.max_running IS NOT NULL
    ON CONFLICT DO NOTHING;
    SELECT array_agg(r.limit_key), array_agg(r.jobs) INTO keys, starts
    FROM (SELECT a.limit_key, count(*) AS jobs FROM faultline.jobs AS j, faultline.limits_of(j) AS a
          JOIN faultline.limits AS l ON l.name = a.name
          WHERE j.id = ANY (job_ids) AND l.rate_jobs IS NOT NULL GROUP BY a.limit_key) AS r;
    IF keys IS NOT NULL THEN
        UPDATE faultline.limit_states AS s
        SET next_start_at = greatest(s.next_start_at, moment - r.share * (r.burst - 1)) + r.share * r.jobs
        FROM faultline.rates_of(keys, starts) AS r WHERE s.limit_key = r.limit_key AND s.limit_key = ANY (keys);
        PERFORM set_config('faultline.starts', jsonb_build_array(keys, starts)::text, true);
    END IF;
END $$;

-- The rates of these limit keys beside a number for each.
CREATE OR REPLACE FUNCTION faultline.rates_of(keys text[], numbers bigint[])
RETURNS TABLE (limit_key text, share interval, burst integer, jobs bigint)
LANGUAGE sql STABLE AS $$
    SELECT g.limit_key, make_interval(secs => l.rate_seconds / l.rate_jobs), l.burst, g.number
    FROM unnest(keys, numbers) AS g (limit_key, number) JOIN faultline.limits AS l ON l.name = split_part(g.limit_key, '=', 1)
$$;

-- After a claim has started jobs: counts them towards their rates as if they had started now. They have started a little earlier, so
-- that by claimed_at too, no period holds more starts than a rate allows.
CREATE OR REPLACE FUNCTION faultline.settle_starts() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    started jsonb := nullif(current_setting('faultline.starts', true), '');
    moment  timestamptz := clock_timestamp();
    keys    text[];
    starts  bigint[];
BEGIN
    PERFORM set_config('faultline.claim_reduced', '', true);
    IF started IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('faultline.starts', '', true);
    keys := ARRAY(SELECT jsonb_array_elements_text(started -> 0));
    starts := ARRAY(SELECT jsonb_array_elements_text(started -> 1)::bigint);
    UPDATE faultline.limit_states AS s
    SET next_start_at = greatest(s.next_start_at, moment - r.share * (r.burst - 1) + r.share * r.jobs)
    FROM faultline.rates_of(keys, starts) AS r WHERE s.limit_key = r.limit_key AND s.limit_key = ANY (keys);
END $$;

-- ── Waiting ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Lets these due jobs, which the caller has locked, wait for their limit keys. A job whose key another claim has locked waits for a
-- tenth of a second only. If most of the candidates wait, due jobs behind them that have the same keys wait too, so that the next
-- look finds other jobs: a key with many due jobs must not keep claims busy. The admitted jobs are about to start.
CREATE OR REPLACE FUNCTION faultline.park(job_ids uuid[], waits_for text[], locked_keys text[], admitted uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    moment    timestamptz := clock_timestamp();
    oldest    timestamptz := moment - interval '876600 hours'; -- see parked_after
    full_keys text[] := ARRAY(SELECT DISTINCT w FROM unnest(waits_for) AS w WHERE w = ANY (locked_keys));
    lane      record;
    behind    uuid[];
BEGIN
    IF cardinality(job_ids) >= cardinality(admitted) AND full_keys <> '{}' THEN
        FOR lane IN SELECT j.queue, j.priority, min(j.next_run_at) AS since FROM faultline.jobs AS j WHERE j.id = ANY (job_ids)
                    GROUP BY j.queue, j.priority LIMIT 4 LOOP
            behind := ARRAY(
                SELECT d.id FROM (SELECT c.id, c.next_run_at
                                  FROM (SELECT j.* FROM faultline.jobs AS j
                                        WHERE j.state = 'queued' AND j.queue = lane.queue AND j.priority = lane.priority
                                          AND j.next_run_at BETWEEN lane.since AND statement_timestamp()
                                        ORDER BY j.next_run_at, j.id LIMIT 500) AS c -- jobs without limits may be a million
                                  WHERE c.id <> ALL (job_ids || admitted)
                                    AND EXISTS (SELECT FROM faultline.limits_of(c::faultline.jobs) AS a
                                                WHERE a.limit_key = ANY (full_keys))
                                  ORDER BY c.next_run_at, c.id LIMIT 200) AS b
                JOIN faultline.jobs AS d ON d.id = b.id FOR UPDATE OF d SKIP LOCKED);
            waits_for := waits_for || ARRAY(
                SELECT (SELECT min(a.limit_key) FROM faultline.limits_of(j) AS a WHERE a.limit_key = ANY (full_keys))
                FROM unnest(behind) WITH ORDINALITY AS b (id, ordinal) JOIN faultline.jobs AS j ON j.id = b.id ORDER BY b.ordinal);
            job_ids := job_ids || behind;
        END LOOP;
    END IF;
    INSERT INTO faultline.waiting_jobs AS w (job_id, limit_key, queue, priority, due_at, resume_at)
    SELECT j.id, g.waits_for, j.queue, j.priority, greatest(j.next_run_at, oldest),
           CASE WHEN g.waits_for <> ALL (locked_keys) THEN moment + interval '100 ms' END
    FROM unnest(job_ids, waits_for) AS g (id, waits_for) JOIN faultline.jobs AS j ON j.id = g.id
    WHERE j.id = ANY (job_ids) AND coalesce(j.state = 'queued' AND j.next_run_at <= moment, false)
    ON CONFLICT (job_id) DO UPDATE
    SET limit_key = excluded.limit_key, queue = excluded.queue, priority = excluded.priority, due_at = excluded.due_at,
        resume_at = excluded.resume_at;
    UPDATE faultline.jobs AS j SET next_run_at = greatest(j.next_run_at, oldest) + faultline.parked_for(), limited = true
    WHERE j.id = ANY (job_ids) AND coalesce(j.state = 'queued' AND j.next_run_at <= moment, false);
    UPDATE faultline.limit_states AS s SET is_awaited = true
    FROM faultline.limits AS l
    WHERE s.limit_key = ANY (full_keys) AND NOT s.is_awaited AND l.name = split_part(s.limit_key, '=', 1)
      AND l.rate_jobs IS NOT NULL -- if its places are full, the jobs wait for the end of one
      AND (l.max_running IS NULL OR l.max_running > (SELECT count(*) FROM faultline.places AS p WHERE p.limit_key = s.limit_key));
    IF cardinality(full_keys) < (SELECT count(DISTINCT w) FROM unnest(waits_for) AS w) THEN
        PERFORM faultline.broadcast('@0.1 ' || q.queue)
        FROM (SELECT DISTINCT j.queue FROM faultline.jobs AS j WHERE j.id = ANY (job_ids)) AS q;
    END IF;
END $$;

-- Tells the workers when the next job of each of these keys may start under its rate. (listener.py reads '@seconds queue'.) Of a key
-- whose places are full, the end of a job tells them.
CREATE OR REPLACE FUNCTION faultline.wake_later(keys text[], moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM faultline.broadcast(format('@%s %s', ceil(extract(epoch FROM greatest(s.next_start_at, moment) - moment) * 1000) / 1000,
                                  w.queue))
    FROM faultline.limit_states AS s
    JOIN faultline.limits AS l ON l.name = split_part(s.limit_key, '=', 1)
    CROSS JOIN LATERAL faultline.heads_of(s.limit_key) AS w
    WHERE s.limit_key = ANY (keys) AND s.is_awaited AND s.next_start_at < moment + interval '10 seconds'
      AND faultline.room_of(s.limit_key, s, l, greatest(s.next_start_at, moment)) > 0;
END $$;

-- The first waiting job of a key in each queue that is not paused, in the order of the line: one index entry is read for each queue.
-- `is_served`: a live worker has registered for the queue, or the line has no other. (A client that claims by SQL alone has not.)
CREATE OR REPLACE FUNCTION faultline.heads_of(key text)
RETURNS TABLE (queue text, priority smallint, due_at timestamptz, is_served boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    WITH RECURSIVE head (queue, priority, due_at, job_id) AS (
        (SELECT w.queue, w.priority, w.due_at, w.job_id FROM faultline.waiting_jobs AS w WHERE w.limit_key = key
         ORDER BY w.limit_key, w.queue, w.priority, w.due_at, w.job_id LIMIT 1)
        UNION ALL
        SELECT n.* FROM head AS h CROSS JOIN LATERAL (
            SELECT w.queue, w.priority, w.due_at, w.job_id FROM faultline.waiting_jobs AS w
            WHERE w.limit_key = key AND w.queue > h.queue
            ORDER BY w.limit_key, w.queue, w.priority, w.due_at, w.job_id LIMIT 1) AS n)
    SELECT h.queue, h.priority, h.due_at,
           (SELECT count(*) FROM head) = 1 OR EXISTS (
               SELECT FROM faultline.workers AS w
               WHERE w.lost_at IS NULL AND w.drain_requested_at IS NULL AND h.queue = ANY (w.queues))
    FROM (SELECT * FROM head LIMIT 1000) AS h
    WHERE NOT EXISTS (SELECT FROM faultline.paused_queues AS z WHERE z.queue = h.queue)
    ORDER BY h.priority, h.due_at, h.job_id
$$;

-- Makes waiting jobs of this key due again, at their former time, and wakes their workers: the first ones by priority and time. It
-- waits for no lock. A claim then decides anew whether they may start, so one too many is harmless. One too few is not: a job that
-- no worker claims would keep the place free. So jobs of paused queues are passed over, and jobs of queues without a registered
-- worker do not count.
CREATE OR REPLACE FUNCTION faultline.unpark(key text, max_jobs integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    served   text[];
    unserved text[];
    chosen   uuid[];
BEGIN
    SELECT array_agg(h.queue ORDER BY h.priority, h.due_at) FILTER (WHERE h.is_served),
           array_agg(h.queue ORDER BY h.priority, h.due_at) FILTER (WHERE NOT h.is_served)
    INTO served, unserved FROM faultline.heads_of(key) AS h;
    chosen := faultline.lock_first(key, coalesce(served, '{}'), max_jobs);
    IF unserved IS NOT NULL THEN
        chosen := chosen || faultline.lock_first(key, unserved, max_jobs);
    END IF;
    IF chosen <> '{}' THEN
        PERFORM faultline.unpark_jobs(chosen);
    END IF;
    RETURN cardinality(chosen);
END $$;

-- Locks the first waiting jobs of a key in these queues, by priority and time; those that are locked are skipped. The queues are in
-- the order of their first jobs, so the first job of all is in the first queue that has one which is not locked.
CREATE OR REPLACE FUNCTION faultline.lock_first(key text, queues text[], max_jobs integer) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    candidates uuid[] := '{}';
BEGIN
    FOR place IN 1..cardinality(queues) LOOP
        candidates := candidates || ARRAY(
            SELECT w.job_id FROM faultline.waiting_jobs AS w JOIN faultline.jobs AS j ON j.id = w.job_id
            WHERE w.limit_key = key AND w.queue = queues[place] AND faultline.is_parked(j, w.due_at)
            ORDER BY w.limit_key, w.queue, w.priority, w.due_at, w.job_id LIMIT max_jobs FOR UPDATE OF j SKIP LOCKED);
        EXIT WHEN max_jobs = 1 AND candidates <> '{}';
    END LOOP;
    IF cardinality(candidates) > max_jobs THEN
        candidates := ARRAY(SELECT w.job_id FROM faultline.waiting_jobs AS w WHERE w.job_id = ANY (candidates)
                            ORDER BY w.priority, w.due_at, w.job_id LIMIT max_jobs);
    END IF;
    RETURN candidates;
END $$;

-- The same for jobs that the caller has locked.
CREATE OR REPLACE FUNCTION faultline.unpark_jobs(job_ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    woken integer;
BEGIN
    WITH gone AS (DELETE FROM faultline.waiting_jobs AS w WHERE w.job_id = ANY (job_ids) RETURNING w.job_id, w.due_at),
    moved AS (
        -- It was due, so a later time means that the clock was set back since.
        UPDATE faultline.jobs AS j SET next_run_at = least(g.due_at, clock_timestamp()) FROM gone AS g
        WHERE j.id = g.job_id AND j.id = ANY (job_ids) AND faultline.is_parked(j, g.due_at)
        RETURNING j.queue)
    SELECT count(faultline.broadcast('@0 ' || q.queue)) INTO woken FROM (SELECT DISTINCT m.queue FROM moved AS m) AS q;
END $$;

-- Before a claim looks for jobs: makes those due again whose rate allows a start by now, and those that waited for another claim's
-- decision. Few rows qualify, because both indexes hold only such rows.
CREATE OR REPLACE FUNCTION faultline.resume_waiting() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    chosen uuid[] := ARRAY(
        SELECT w.job_id FROM faultline.waiting_jobs AS w JOIN faultline.jobs AS j ON j.id = w.job_id
        WHERE w.resume_at <= moment ORDER BY w.resume_at LIMIT 500 FOR UPDATE OF j SKIP LOCKED);
    state  faultline.limit_states;
    room   integer;
BEGIN
    IF chosen <> '{}' THEN
        PERFORM faultline.unpark_jobs(chosen);
    END IF;
    FOR state IN SELECT s.* FROM faultline.limit_states AS s WHERE s.is_awaited AND s.next_start_at <= moment
                 ORDER BY s.next_start_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED LOOP
        room := coalesce((SELECT faultline.room_of(state.limit_key, state, l, moment) FROM faultline.limits AS l
                          WHERE l.name = split_part(state.limit_key, '=', 1)), 1000);
        IF room > 0 THEN
            room := faultline.unpark(state.limit_key, room);
        END IF;
        IF room = 0 THEN -- no job waits, or all places are taken: then the end of a job makes the next one due
            UPDATE faultline.limit_states AS s SET is_awaited = false WHERE s.limit_key = state.limit_key;
        END IF;
    END LOOP;
END $$;

-- ── Ending ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Frees the places of a job when its lease ends, whichever function ends it, and lets the next jobs of the same keys start. A job
-- that is cancelled while it waits leaves the line. It waits for no lock. Above READ COMMITTED a row that another transaction has
-- changed since would make the handler's COMMIT fail, so there the next jobs are left to repair_limits.
-- AFTER, because it changes rows of waiting jobs, and the statement that fired it may be about to change the same rows.
CREATE OR REPLACE FUNCTION faultline.free_places() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    freed text[];
    key   text;
BEGIN
    WITH gone AS (DELETE FROM faultline.places AS p WHERE p.job_id = NEW.id RETURNING p.limit_key)
    SELECT array_agg(g.limit_key ORDER BY g.limit_key) INTO freed FROM gone AS g;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        IF OLD.state = 'queued' THEN
            DELETE FROM faultline.waiting_jobs AS w WHERE w.job_id = NEW.id;
        END IF;
        FOREACH key IN ARRAY coalesce(freed, '{}') LOOP
            PERFORM faultline.unpark(key, 1);
        END LOOP;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER free_places AFTER UPDATE ON faultline.jobs FOR EACH ROW
WHEN (NEW.limited AND NEW.state <> 'running' AND OLD.state <> NEW.state)
EXECUTE FUNCTION faultline.free_places();
