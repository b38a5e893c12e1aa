-- What keeps the tables lean for years: retention, and counts that do not read a table to count it.
-- Nothing here guards a job. Only jobs that have ended are removed, and each call is one short transaction that looks at
-- a bounded number of rows, waits for nobody's lock, and says where the next one goes on.

-- The smallest id that a job made at this moment can have. Ids begin with the time, so the primary key is an index on
-- when jobs were made: retention needs no other, and a commit has none to keep up. (A job inserted by hand under an id of
-- another kind is purged if that id sorts among the old ones, or never.)
CREATE OR REPLACE FUNCTION faultline.first_id_at(moment timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM greatest(moment, 'epoch')) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- The moment before which rows are removed; null for never. Kept for an hour at least: a worker that lost the answer to its
-- commit looks for it in the ledger, and must find it there. The moment is compared, not the interval (see seconds_from_now).
CREATE OR REPLACE FUNCTION faultline.removed_before(kept interval, batch_size integer) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    oldest timestamptz;
BEGIN
    IF faultline.seconds_from_now(kept) <> 'infinity' THEN
        oldest := moment - kept;
    END IF;
    IF (batch_size BETWEEN 1 AND 10000) IS NOT TRUE OR oldest > moment - interval '3600 seconds'
       OR (oldest IS NULL AND kept < interval '1 hour') THEN
        RAISE EXCEPTION 'cannot purge % rows at a time of what is kept for %', batch_size, kept USING ERRCODE = 'FL005',
            HINT = 'batch_size is 1 to 10000; what is kept at all is kept for an hour at least, NULL for ever.';
    END IF;
    RETURN oldest;
END $$;

-- Safe because only ended jobs are taken, under their lock, and looked at again once it is held: a retry that was faster
-- keeps its job. What had ended by some moment was made before it, so the walk over the primary key stops there. The log
-- of a job's attempts and refusals goes with it; its entry in the ledger stays, for purge_ledger.
-- The key of a purged job is free again: enqueueing it once more makes a new job.
CREATE OR REPLACE FUNCTION faultline.purge_jobs(
    keep_succeeded interval, keep_failed interval, after_id uuid DEFAULT NULL, batch_size integer DEFAULT 500,
    dry_run boolean DEFAULT false)
RETURNS TABLE (succeeded integer, failed integer, last_id uuid) -- last_id: where to go on; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    old_success timestamptz := faultline.removed_before(keep_succeeded, batch_size);
    old_failure timestamptz := faultline.removed_before(keep_failed, batch_size);
    first_kept  uuid := faultline.first_id_at(greatest(old_success, old_failure));
    page        uuid[];
BEGIN
    page := ARRAY(SELECT j.id FROM faultline.jobs AS j
                  WHERE j.id > coalesce(after_id, '00000000-0000-0000-0000-000000000000') AND j.id < first_kept
                  ORDER BY j.id LIMIT batch_size);
    last_id := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    IF NOT dry_run THEN
        page := ARRAY(SELECT j.id FROM faultline.jobs AS j
                      WHERE j.id = ANY (page)
                        AND j.finished_at < CASE j.state WHEN 'succeeded' THEN old_success WHEN 'failed' THEN old_failure END
                      ORDER BY j.id FOR UPDATE SKIP LOCKED);
    END IF;
    SELECT count(*) FILTER (WHERE j.state = 'succeeded'), count(*) FILTER (WHERE j.state = 'failed')
    INTO succeeded, failed
    FROM faultline.jobs AS j
    WHERE j.id = ANY (page)
      AND j.finished_at < CASE j.state WHEN 'succeeded' THEN old_success WHEN 'failed' THEN old_failure END;
    IF NOT dry_run AND cardinality(page) > 0 THEN
        DELETE FROM faultline.attempts_log AS a WHERE a.job_id = ANY (page);
        DELETE FROM faultline.rejections AS r WHERE r.job_id = ANY (page);
        DELETE FROM faultline.deferred_jobs AS d WHERE d.job_id = ANY (page);
        DELETE FROM faultline.jobs AS j WHERE j.id = ANY (page);
        PERFORM faultline.audit_purge('jobs', cardinality(page));
    END IF;
    RETURN NEXT;
END $$;

-- Safe because an entry outlives its job, whatever is asked for: without it a succeeded job would look like one that
-- never took effect. And a late commit for a job that is gone is refused with or without the entry: unknown_job.
-- Refusals that were recorded when their job was gone already are removed here, since no job takes them along.
CREATE OR REPLACE FUNCTION faultline.purge_ledger(
    keep interval, after_id uuid DEFAULT NULL, batch_size integer DEFAULT 500, dry_run boolean DEFAULT false)
RETURNS TABLE (entries integer, last_id uuid) -- last_id: where to go on; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    oldest     timestamptz := faultline.removed_before(keep, batch_size);
    first_kept uuid := faultline.first_id_at(oldest);
    page       uuid[];
BEGIN
    page := ARRAY(SELECT l.job_id FROM faultline.ledger AS l
                  WHERE l.job_id > coalesce(after_id, '00000000-0000-0000-0000-000000000000') AND l.job_id < first_kept
                  ORDER BY l.job_id LIMIT batch_size);
    last_id := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    page := ARRAY(SELECT l.job_id FROM faultline.ledger AS l
                  WHERE l.job_id = ANY (page) AND l.committed_at < oldest
                    AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = l.job_id));
    IF dry_run THEN
        entries := cardinality(page);
    ELSE
        PERFORM set_config('faultline.verb', 'retention', true);
        DELETE FROM faultline.ledger AS l WHERE l.job_id = ANY (ARRAY(
            SELECT o.job_id FROM faultline.ledger AS o WHERE o.job_id = ANY (page)
            ORDER BY o.job_id FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS entries = ROW_COUNT;
        PERFORM set_config('faultline.verb', '', true);
        PERFORM faultline.audit_purge('ledger', entries);
        DELETE FROM faultline.rejections AS r WHERE r.id = ANY (ARRAY(
            SELECT o.id FROM faultline.rejections AS o
            WHERE o.job_id < first_kept AND o.rejected_at < oldest
              AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = o.job_id)
            ORDER BY o.job_id LIMIT batch_size FOR UPDATE SKIP LOCKED));
    END IF;
    RETURN NEXT;
END $$;

-- ── Counts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- About how many jobs of a queue stand like this, by what ANALYZE last saw, scaled to the table's size now. The planner
-- takes columns for independent of each other; statistics on (queue, state) tell it otherwise, and jobs for later are
-- always queued ones, so their share is taken of those. Null while the table has never been analyzed.
CREATE OR REPLACE FUNCTION faultline.estimated_jobs(queue text, standing text, at_least bigint DEFAULT 0)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state     text := CASE WHEN standing IN ('due', 'scheduled') THEN 'queued' ELSE standing END;
    condition text;
    plan      json;
    rows      bigint[];
BEGIN
    IF (SELECT c.reltuples < 0 FROM pg_class AS c WHERE c.oid = 'faultline.jobs'::regclass) THEN
        RETURN NULL;
    END IF;
    FOREACH condition IN ARRAY ARRAY[format('queue = %L AND state = %L', queue, state),
                                     'state = ''queued''', format('next_run_at > %L', clock_timestamp())] LOOP
        EXECUTE 'EXPLAIN (FORMAT JSON) SELECT FROM faultline.jobs WHERE ' || condition INTO plan;
        rows := rows || (plan #>> '{0,Plan,Plan Rows}')::bigint;
    END LOOP;
    rows[1] := CASE WHEN rows[1] > 1 THEN rows[1] ELSE 0 END; -- the planner never says none
    RETURN greatest(at_least, CASE standing WHEN 'scheduled' THEN rows[1] * least(1.0, rows[3]::numeric / rows[2])
                                            WHEN 'due' THEN rows[1] * (1 - least(1.0, rows[3]::numeric / rows[2]))
                                            ELSE rows[1] END);
END $$;

-- One range of the index for each priority, like a claim: the first of each is the oldest. Counting stops at the bound.
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

-- How many jobs of each queue are due, scheduled for later, running, failed, succeeded, and since when the first of them.
-- Exact up to a bound for each, and read from an index that holds nothing else, so that the millions of jobs beside them
-- cost nothing; beyond it, at least that many, and an estimate. Succeeded ones are in no index, because every commit
-- would have to keep it up: they are counted while the table is small, and estimated alone after that. Running ones are counted over all queues together,
-- up to ten times the bound. Queues are those that have any of these, are listened to, or are common in the table.
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
        WITH RECURSIVE waiting (queue) AS ( -- from one queue's name to the next, however many jobs lie between
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
            ORDER BY j.lease_expires_at LIMIT 10 * exact_up_to::bigint + 1),
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
        counted AS (
            SELECT k.queue, 1 AS ordinal, 'due' AS standing, least(due.jobs, exact_up_to) AS jobs,
                   due.jobs <= exact_up_to AS is_exact, due.since
            FROM known AS k
            CROSS JOIN LATERAL faultline.count_queued(k.queue, '-infinity', statement_timestamp(), exact_up_to) AS due
            UNION ALL
            SELECT k.queue, 2, 'scheduled', least(later.jobs, exact_up_to), later.jobs <= exact_up_to, later.since
            FROM known AS k
            CROSS JOIN LATERAL faultline.count_queued(k.queue, statement_timestamp(), 'infinity', exact_up_to) AS later
            UNION ALL
            SELECT k.queue, 3, 'running', coalesce(r.jobs, 0),
                   (SELECT count(*) <= 10 * exact_up_to::bigint FROM held), r.since
            FROM known AS k LEFT JOIN running AS r ON r.queue = k.queue
            UNION ALL
            SELECT k.queue, 4, 'failed', least(dead.jobs, exact_up_to), dead.jobs <= exact_up_to,
                   (SELECT min(j.finished_at) FROM faultline.jobs AS j WHERE j.state = 'failed' AND j.queue = k.queue)
            FROM known AS k CROSS JOIN LATERAL (
                SELECT count(*) AS jobs FROM (SELECT FROM faultline.jobs AS j WHERE j.state = 'failed' AND j.queue = k.queue
                                              LIMIT exact_up_to + 1) AS found) AS dead
            UNION ALL
            SELECT k.queue, 5, 'succeeded', coalesce(d.jobs, 0), is_small, NULL
            FROM known AS k LEFT JOIN done AS d ON d.queue = k.queue)
        SELECT c.queue, c.standing, c.jobs, c.is_exact,
               CASE WHEN NOT c.is_exact THEN faultline.estimated_jobs(c.queue, c.standing, c.jobs) END, c.since
        FROM counted AS c ORDER BY c.queue, c.ordinal;
END $$;
