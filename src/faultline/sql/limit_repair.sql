-- Repair of limits: brings places and lines back to what the jobs say, page by page.
--
-- The leading reconciler calls repair_limits every second, so that a lost step of an end of a lease costs seconds and never a job. It
-- waits for no lock. Each step reads a page without locks, locks the rows of jobs that it would change, and judges them again by a
-- statement that begins after it has the locks: a claim may have changed a job between the two (the order of locks is in places.sql).

-- One step of the repair. Safe because it deletes a place or a row of waiting_jobs only under the lock of a job that does not need it,
-- or has none any more, and otherwise only makes waiting jobs due again, which claims judge anew. Each call reads a page of at most
-- ten times max_rows rows of each table; `next` is where to continue, for `after` of the next call.
CREATE OR REPLACE FUNCTION faultline.repair_limits(max_rows integer DEFAULT 1000, after jsonb DEFAULT NULL)
RETURNS TABLE (freed integer, resumed integer, forgotten integer, next jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    page_size integer := 10 * max_rows;
    last_wait uuid;
    lost_from jsonb;
    last_line text;
    last_key  text;
    found     integer;
BEGIN
    IF (max_rows BETWEEN 1 AND 10000) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot repair % rows at a time', max_rows USING ERRCODE = 'FL005', HINT = 'max_rows is 1 to 10000.';
    END IF;
    freed := faultline.free_idle_places(max_rows);
    SELECT f.rows, f.last INTO forgotten, last_wait FROM faultline.forget_waits((after ->> 'wait')::uuid, page_size) AS f;
    SELECT r.rows, r.next INTO resumed, lost_from FROM faultline.resume_lost(after -> 'lost', page_size) AS r;
    PERFORM faultline.bring_starts_forward();
    SELECT r.rows, r.last INTO found, last_line FROM faultline.resume_lines(after ->> 'line', page_size, max_rows) AS r;
    resumed := resumed + found;
    last_key := faultline.forget_keys(after ->> 'key', page_size);
    next := jsonb_strip_nulls(jsonb_build_object('wait', last_wait, 'lost', lost_from, 'line', last_line, 'key', last_key));
    RETURN NEXT;
END $$;

-- Deletes places of jobs that do not run. There are as many places as running jobs, so all are read.
CREATE OR REPLACE FUNCTION faultline.free_idle_places(max_rows integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    idle  uuid[] := ARRAY(SELECT p.job_id FROM faultline.places AS p LEFT JOIN faultline.jobs AS j ON j.id = p.job_id
                          WHERE j.state IS DISTINCT FROM 'running' LIMIT max_rows);
    freed integer;
BEGIN
    IF idle = '{}' THEN
        RETURN 0;
    END IF;
    idle := ARRAY(SELECT i FROM unnest(idle) AS i WHERE NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = i))
         || ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (idle) AND j.state <> 'running'
                  ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
    DELETE FROM faultline.places AS p WHERE p.job_id = ANY (idle);
    GET DIAGNOSTICS freed = ROW_COUNT;
    RETURN freed;
END $$;

-- Deletes rows of waiting_jobs whose job does not wait: it is gone, has ended, or was rescheduled.
CREATE OR REPLACE FUNCTION faultline.forget_waits(after uuid, page_size integer, OUT rows integer, OUT last uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    first uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
    stale uuid[];
BEGIN
    rows := 0;
    last := (SELECT o.job_id FROM faultline.waiting_jobs AS o WHERE o.job_id > first ORDER BY o.job_id OFFSET page_size - 1 LIMIT 1);
    stale := ARRAY(
        SELECT o.job_id FROM faultline.waiting_jobs AS o LEFT JOIN faultline.jobs AS j ON j.id = o.job_id
        WHERE o.job_id > first AND (last IS NULL OR o.job_id <= last)
          AND NOT faultline.is_parked(j, o.due_at));
    IF stale <> '{}' THEN
        stale := ARRAY(SELECT i FROM unnest(stale) AS i WHERE NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = i))
              || ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (stale) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
        DELETE FROM faultline.waiting_jobs AS w WHERE w.job_id = ANY (ARRAY(
            SELECT o.job_id FROM faultline.waiting_jobs AS o LEFT JOIN faultline.jobs AS j ON j.id = o.job_id
            WHERE o.job_id = ANY (stale) AND NOT faultline.is_parked(j, o.due_at)));
        GET DIAGNOSTICS rows = ROW_COUNT;
    END IF;
END $$;

-- Makes jobs due again that claims pass over although they are in no line. Nothing makes such jobs; but nothing else would find them.
CREATE OR REPLACE FUNCTION faultline.resume_lost(after jsonb, page_size integer, OUT rows integer, OUT next jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    seen integer;
    lost uuid[];
BEGIN
    rows := 0;
    SELECT count(*), array_agg(p.id) FILTER (WHERE p.is_limited AND NOT EXISTS (
                         SELECT FROM faultline.waiting_jobs AS w WHERE w.job_id = p.id)),
           (array_agg(p.index_position ORDER BY p.ordinal DESC))[1]
    INTO seen, lost, next
    FROM (SELECT q.*, row_number() OVER () AS ordinal FROM faultline.parked_page(after, page_size) AS q) AS p;
    IF seen < page_size THEN
        next := NULL;
    END IF;
    IF lost IS NOT NULL THEN
        lost := ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (lost) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
        WITH moved AS (
            UPDATE faultline.jobs AS j SET next_run_at = least(j.next_run_at - faultline.parked_for(), clock_timestamp())
            WHERE j.id = ANY (lost) AND j.state = 'queued' AND j.limited AND j.next_run_at > faultline.parked_after()
              AND NOT EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.job_id = j.id)
            RETURNING j.queue),
        woken AS (SELECT faultline.broadcast('@0 ' || q.queue) FROM (SELECT DISTINCT m.queue FROM moved AS m) AS q)
        SELECT count(*) INTO rows FROM moved, (SELECT count(*) FROM woken) AS all_woken;
    END IF;
END $$;

-- A page of the queued jobs that claims pass over because their time is centuries ahead: for each lane, the end of its index range.
CREATE OR REPLACE FUNCTION faultline.parked_page(after jsonb, page_size integer)
RETURNS TABLE (id uuid, is_limited boolean, index_position jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    WITH RECURSIVE lane (queue, priority) AS (
        (SELECT j.queue::text, j.priority FROM faultline.jobs AS j
         WHERE j.state = 'queued'
           AND (j.queue, j.priority) >= (coalesce(after ->> 0, ''), coalesce((after ->> 1)::smallint, 0::smallint))
         ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1)
        UNION ALL
        SELECT n.queue, n.priority
        FROM lane AS l
        CROSS JOIN LATERAL (
            SELECT j.queue::text AS queue, j.priority FROM faultline.jobs AS j
            WHERE j.state = 'queued' AND (j.queue, j.priority) > (l.queue, l.priority)
            ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1) AS n)
    SELECT p.id, p.limited, jsonb_build_array(l.queue, l.priority, p.next_run_at, p.id)
    FROM (SELECT n.queue, n.priority, (n.queue, n.priority) = (after ->> 0, (after ->> 1)::smallint) AS is_first
          FROM lane AS n LIMIT 10000) AS l
    CROSS JOIN LATERAL (
        SELECT j.id, j.limited, j.next_run_at FROM faultline.jobs AS j
        WHERE j.state = 'queued' AND j.queue = l.queue AND j.priority = l.priority
          AND (j.next_run_at, j.id) > (CASE WHEN l.is_first THEN (after ->> 2)::timestamptz ELSE faultline.parked_after() END,
                                       CASE WHEN l.is_first THEN (after ->> 3)::uuid ELSE '00000000-0000-0000-0000-000000000000' END)
        ORDER BY j.next_run_at, j.id LIMIT page_size) AS p
    LIMIT page_size
$$;

-- Makes jobs due for which there is room, in the order of their keys. It stops in the middle of the page when it has resumed
-- max_jobs, so that a key with many jobs is finished first.
CREATE OR REPLACE FUNCTION faultline.resume_lines(after text, page_size integer, max_jobs integer, OUT rows integer, OUT last text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    former text := after;
    seen   integer := 0;
    line   record;
BEGIN
    rows := 0;
    FOR line IN
        SELECT w.limit_key, CASE WHEN l.name IS NULL THEN max_jobs
                                 ELSE least(faultline.room_of(w.limit_key, s, l, clock_timestamp()), max_jobs) END AS room
        FROM faultline.waiting_lines(NULL, after, page_size) AS w (limit_key)
        LEFT JOIN faultline.limits AS l ON l.name = split_part(w.limit_key, '=', 1)
        LEFT JOIN faultline.limit_states AS s ON s.limit_key = w.limit_key
    LOOP
        seen := seen + 1;
        last := line.limit_key;
        IF line.room > 0 THEN
            rows := rows + faultline.unpark(line.limit_key, line.room::integer);
            IF rows >= max_jobs THEN
                last := former;
                RETURN;
            END IF;
        END IF;
        former := line.limit_key;
    END LOOP;
    IF seen < page_size THEN
        last := NULL;
    END IF;
END $$;

-- Deletes the rows of keys that were not used for a day. Their places and lines are empty, and their buckets are full.
CREATE OR REPLACE FUNCTION faultline.forget_keys(after text, page_size integer) RETURNS text -- the last key of the page
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    last text := (SELECT o.limit_key FROM faultline.limit_states AS o WHERE o.limit_key > coalesce(after, '')
                  ORDER BY o.limit_key OFFSET page_size - 1 LIMIT 1);
BEGIN
    DELETE FROM faultline.limit_states AS s WHERE s.limit_key = ANY (ARRAY(
        SELECT o.limit_key FROM faultline.limit_states AS o
        WHERE o.limit_key > coalesce(after, '') AND (last IS NULL OR o.limit_key <= last)
          AND o.next_start_at < clock_timestamp() - interval '1 day' AND NOT o.is_awaited AND strpos(o.limit_key, '=') > 0
          AND NOT EXISTS (SELECT FROM faultline.places AS p WHERE p.limit_key = o.limit_key)
          AND NOT EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.limit_key = o.limit_key)
        ORDER BY o.limit_key FOR UPDATE SKIP LOCKED));
    RETURN last;
END $$;
