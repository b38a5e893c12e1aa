-- Counts of limits, for metrics. Functions, because workers count too and may not read the values of arguments: a limit key has one.

-- Whether there is anything to repair.
CREATE OR REPLACE FUNCTION faultline.limits_in_use() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM faultline.limits) OR EXISTS (SELECT FROM faultline.waiting_jobs)
$$;

-- Each limit, and how many jobs run and wait under it, over all its keys and up to this number.
CREATE OR REPLACE FUNCTION faultline.limit_uses(count_up_to integer)
RETURNS TABLE (name text, max_running integer, rate_jobs integer, rate_seconds double precision, burst integer, changed_by text,
               is_declared boolean, changed_at timestamptz, running bigint, waiting bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
    SELECT l.name, l.max_running, l.rate_jobs, l.rate_seconds, l.burst, l.changed_by, l.declared IS NOT NULL, l.changed_at,
           (SELECT count(*) FROM (
                SELECT FROM faultline.places AS p
                WHERE p.limit_key = l.name OR (p.limit_key >= l.name || '=' AND p.limit_key < l.name || '>')
                LIMIT count_up_to) AS placed),
           (SELECT count(*) FROM (
                SELECT FROM faultline.waiting_jobs AS w
                WHERE w.limit_key = l.name OR (w.limit_key >= l.name || '=' AND w.limit_key < l.name || '>')
                LIMIT count_up_to) AS lined)
    FROM faultline.limits AS l
    ORDER BY l.name
$$;

-- The number of keys of each limit that have room and jobs that could start, and started none for 30 s. repair_limits makes such jobs
-- due within seconds, so it is not zero for long. A call looks at one page of the keys that jobs wait for.
CREATE OR REPLACE FUNCTION faultline.idle_keys(
    after text DEFAULT NULL, page_size integer DEFAULT 1000, OUT idle jsonb, OUT last_key text) -- null at the end
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    page   text[] := ARRAY(SELECT w FROM faultline.waiting_lines(NULL, after, page_size) AS w);
    moment timestamptz := clock_timestamp();
BEGIN
    last_key := page[page_size];
    SELECT coalesce(jsonb_object_agg(n.name, n.keys), '{}') INTO idle
    FROM (SELECT l.name::text AS name, count(*) AS keys
          FROM unnest(page) AS k (key)
          JOIN faultline.limits AS l ON l.name = split_part(k.key, '=', 1)
          LEFT JOIN faultline.limit_states AS s ON s.limit_key = k.key
          WHERE NOT EXISTS (SELECT FROM faultline.places AS p WHERE p.limit_key = k.key AND p.taken_at > moment - interval '30 s')
            AND (l.rate_jobs IS NULL OR s.next_start_at IS NULL OR s.next_start_at < moment - interval '30 s')
            AND faultline.room_of(k.key, s, l, moment) > 0
            AND EXISTS (SELECT FROM faultline.heads_of(k.key)) -- not all of its queues are paused
          GROUP BY l.name) AS n;
END $$;
