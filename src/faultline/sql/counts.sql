-- Counts of jobs per queue: exact up to a bound, estimated beyond it, and never by reading a large table.

-- An estimate of how many jobs a queue has in this state, from the planner: the last ANALYZE, scaled to the table's size. The
-- planner assumes that columns are independent; the statistics on (queue, state) correct that, and scheduled jobs are always
-- queued, so their share is taken of the queued ones. Jobs that wait for a limit stand parked_for() later in jobs (places.sql), and
-- hardly any other job stands in the last hundred years of that. Null if the table was never analyzed.
CREATE OR REPLACE FUNCTION faultline.estimated_jobs(queue text, standing text, at_least bigint DEFAULT 0)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment    timestamptz := clock_timestamp();
    state     text := CASE WHEN standing IN ('due', 'waiting', 'scheduled') THEN 'queued' ELSE standing END;
    condition text;
    plan      json;
    rows      bigint[];
    later     numeric; -- the share of the queued jobs that are not due
    waiting   numeric;
BEGIN
    IF (SELECT c.reltuples < 0 FROM pg_class AS c WHERE c.oid = 'faultline.jobs'::regclass) THEN
        RETURN NULL;
    END IF;
    FOREACH condition IN ARRAY ARRAY[format('queue = %L AND state = %L', queue, state),
                                     'state = ''queued''', format('next_run_at > %L', moment),
                                     format('next_run_at BETWEEN %L AND %L', moment + faultline.parked_for() - interval '100 years',
                                            moment + faultline.parked_for())] LOOP
        EXECUTE 'EXPLAIN (FORMAT JSON) SELECT FROM faultline.jobs WHERE ' || condition INTO plan;
        rows := rows || (plan #>> '{0,Plan,Plan Rows}')::bigint;
    END LOOP;
    rows[1] := CASE WHEN rows[1] > 1 THEN rows[1] ELSE 0 END; -- the planner never estimates 0
    later := least(1.0, rows[3]::numeric / rows[2]);
    waiting := CASE WHEN rows[4] > 1 THEN least(later, rows[4]::numeric / rows[2]) ELSE 0 END;
    RETURN greatest(at_least, CASE standing WHEN 'scheduled' THEN rows[1] * (later - waiting)
                                            WHEN 'waiting' THEN rows[1] * waiting
                                            WHEN 'due' THEN rows[1] * (1 - later)
                                            ELSE rows[1] END);
END $$;

-- Counts queued jobs in one index range per priority, as a claim reads them. Counting stops at the bound.
CREATE OR REPLACE FUNCTION faultline.count_queued(queue text, after timestamptz, up_to timestamptz, exact_up_to integer)
RETURNS TABLE (jobs bigint, since timestamptz)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN QUERY
        SELECT (SELECT count(*) FROM (
                    SELECT FROM generate_series(0, 9) AS p (priority)
                    CROSS JOIN LATERAL (
                        SELECT FROM faultline.jobs AS j
                        WHERE j.state = 'queued' AND j.queue = count_queued.queue AND j.priority = p.priority
                          AND j.next_run_at > after AND j.next_run_at <= up_to LIMIT exact_up_to + 1) AS lane
                    LIMIT exact_up_to + 1) AS found),
               (SELECT min(head.next_run_at) FROM generate_series(0, 9) AS p (priority)
                CROSS JOIN LATERAL (
                    SELECT j.next_run_at FROM faultline.jobs AS j
                    WHERE j.state = 'queued' AND j.queue = count_queued.queue AND j.priority = p.priority
                      AND j.next_run_at > after AND j.next_run_at <= up_to
                    ORDER BY j.next_run_at LIMIT 1) AS head);
END $$;

-- How many jobs of each queue are due, wait for a limit, are scheduled for later, running, failed and succeeded, and since when the
-- first of them is.
-- Each count is exact up to a bound, and read from a partial index, so that other jobs cost nothing; beyond the bound it is a
-- minimum and an estimate. Succeeded jobs are in no index, because every commit would have to maintain it: they are counted while
-- the table is small, and only estimated afterwards. Running and waiting jobs are each counted over all queues together, up to ten
-- times the bound.
-- The queues are those that have such jobs, that workers listen to, or that are common in the table.
CREATE OR REPLACE FUNCTION faultline.queues(exact_up_to integer DEFAULT 10000, max_queues integer DEFAULT 1000)
RETURNS TABLE (queue text, standing text, at_least bigint, is_exact boolean, estimate bigint, since timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    is_small boolean := pg_relation_size('faultline.jobs') <= 2097152; -- a few thousand jobs, read in a millisecond
BEGIN
    IF (exact_up_to BETWEEN 1 AND 10000000 AND max_queues BETWEEN 1 AND 10000) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot count exactly up to % in % queues', exact_up_to, max_queues USING ERRCODE = 'FL005',
            HINT = 'exact_up_to is 1 to 10000000, max_queues 1 to 10000.';
    END IF;
    RETURN QUERY
        WITH RECURSIVE waiting (queue) AS ( -- jumps from one queue's name to the next in the index
            (SELECT j.queue::text FROM faultline.jobs AS j WHERE j.state = 'queued' ORDER BY j.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT j.queue FROM faultline.jobs AS j WHERE j.state = 'queued' AND j.queue > w.queue
                    ORDER BY j.queue LIMIT 1)
            FROM waiting AS w WHERE w.queue IS NOT NULL),
        failing (queue) AS (
            (SELECT j.queue::text FROM faultline.jobs AS j WHERE j.state = 'failed' ORDER BY j.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT j.queue FROM faultline.jobs AS j WHERE j.state = 'failed' AND j.queue > f.queue
                    ORDER BY j.queue LIMIT 1)
            FROM failing AS f WHERE f.queue IS NOT NULL),
        held AS MATERIALIZED (
            SELECT j.queue::text AS queue, j.claimed_at FROM faultline.jobs AS j WHERE j.state = 'running'
            ORDER BY j.created_at, j.id LIMIT 10 * exact_up_to::bigint + 1),
        lines AS MATERIALIZED (
            SELECT w.queue, w.due_at FROM faultline.waiting_jobs AS w
            ORDER BY w.job_id LIMIT 10 * exact_up_to::bigint + 1),
        running AS (SELECT h.queue, count(*) AS jobs, min(h.claimed_at) AS since FROM held AS h GROUP BY h.queue),
        done AS MATERIALIZED (
            SELECT j.queue::text AS queue, count(*) AS jobs FROM faultline.jobs AS j
            WHERE is_small AND j.state = 'succeeded' GROUP BY j.queue),
        known AS (
            SELECT named.queue FROM (
                (SELECT w.queue FROM waiting AS w LIMIT max_queues)
                UNION (SELECT f.queue FROM failing AS f LIMIT max_queues)
                UNION SELECT r.queue FROM running AS r UNION SELECT d.queue FROM done AS d UNION SELECT unnest(w.queues) FROM faultline.workers AS w
                UNION SELECT unnest(s.most_common_vals::text::text[]) FROM pg_stats AS s
                      WHERE s.schemaname = 'faultline' AND s.tablename = 'jobs' AND s.attname = 'queue') AS named
            WHERE named.queue IS NOT NULL ORDER BY named.queue LIMIT max_queues),
        limited AS (
            SELECT k.queue, coalesce(l.jobs, 0) AS jobs, l.since, a.jobs <= 10 * exact_up_to::bigint AS is_exact
            FROM (SELECT count(*) AS jobs FROM lines) AS a CROSS JOIN known AS k
            LEFT JOIN (SELECT w.queue, count(*) AS jobs, min(w.due_at) AS since FROM lines AS w GROUP BY w.queue) AS l
                   ON l.queue = k.queue),
        counted AS (
            SELECT k.queue, 1 AS ordinal, 'due' AS standing, least(due.jobs, exact_up_to) AS jobs,
                   due.jobs <= exact_up_to AS is_exact, due.since
            FROM known AS k
            CROSS JOIN LATERAL faultline.count_queued(k.queue, '-infinity', statement_timestamp(), exact_up_to) AS due
            UNION ALL
            SELECT l.queue, 2, 'waiting', l.jobs, l.is_exact, l.since FROM limited AS l
            UNION ALL -- waiting jobs stand among the later ones, so as many more are counted, and subtracted
            SELECT l.queue, 3, 'scheduled', CASE WHEN l.is_exact THEN least(later.jobs - l.jobs, exact_up_to) ELSE 0 END,
                   l.is_exact AND later.jobs <= exact_up_to + l.jobs, CASE WHEN later.jobs > l.jobs THEN later.since END
            FROM limited AS l
            CROSS JOIN LATERAL faultline.count_queued(
                l.queue, statement_timestamp(), 'infinity', exact_up_to + l.jobs::integer) AS later
            UNION ALL
            SELECT k.queue, 4, 'running', coalesce(r.jobs, 0),
                   (SELECT count(*) <= 10 * exact_up_to::bigint FROM held), r.since
            FROM known AS k LEFT JOIN running AS r ON r.queue = k.queue
            UNION ALL
            SELECT k.queue, 5, 'failed', least(failed.jobs, exact_up_to), failed.jobs <= exact_up_to,
                   (SELECT min(j.finished_at) FROM faultline.jobs AS j WHERE j.state = 'failed' AND j.queue = k.queue)
            FROM known AS k CROSS JOIN LATERAL (
                SELECT count(*) AS jobs FROM (SELECT FROM faultline.jobs AS j WHERE j.state = 'failed' AND j.queue = k.queue
                                              LIMIT exact_up_to + 1) AS found) AS failed
            UNION ALL
            SELECT k.queue, 6, 'succeeded', coalesce(d.jobs, 0), is_small, NULL
            FROM known AS k LEFT JOIN done AS d ON d.queue = k.queue)
        SELECT c.queue, c.standing, c.jobs, c.is_exact,
               CASE WHEN NOT c.is_exact THEN faultline.estimated_jobs(c.queue, c.standing, c.jobs) END, c.since
        FROM counted AS c ORDER BY c.queue, c.ordinal;
END $$;
