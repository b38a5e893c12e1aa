-- Limits: declaring, changing and removing them. places.sql applies them, limit_repair.sql repairs their places and lines.

-- ── Changes ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Makes later statements of this transaction exact against claims: each claim that has read the limits ends first, and the others
-- wait until this transaction ends. Dumps and readers are not affected. It gives up after two seconds, because claims wait behind
-- it meanwhile: then a session has left a claim open in a transaction. For the same reason PostgreSQL ends a session that is idle
-- for five seconds in this transaction.
CREATE OR REPLACE FUNCTION faultline.lock_limits() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
BEGIN
    LOCK TABLE faultline.limits IN EXCLUSIVE MODE;
    IF current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN '1 ms' AND '5 s' THEN
        PERFORM faultline.limit_idling('5 s');
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'a claim has been open in a transaction for two seconds, so the limit cannot be changed now'
        USING ERRCODE = 'lock_not_available',
              HINT = 'Try again, or end that session: SELECT * FROM pg_locks WHERE mode = ''RowShareLock''.';
END $$;

-- Writes a limit, and applies it at once. Called with the limits locked.
CREATE OR REPLACE FUNCTION faultline.change_limit(
    limit_name text, max_running integer, rate_jobs integer, rate_seconds double precision, burst integer, changed_by text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO faultline.limits AS l (name, max_running, rate_jobs, rate_seconds, burst, changed_by)
    VALUES (limit_name, change_limit.max_running, change_limit.rate_jobs, change_limit.rate_seconds,
            CASE WHEN change_limit.rate_jobs IS NOT NULL THEN coalesce(change_limit.burst, 1) END, change_limit.changed_by)
    ON CONFLICT (name) DO UPDATE
    SET max_running = excluded.max_running, rate_jobs = excluded.rate_jobs, rate_seconds = excluded.rate_seconds,
        burst = excluded.burst, changed_by = excluded.changed_by, changed_at = clock_timestamp();
    PERFORM faultline.apply_limit(limit_name);
EXCEPTION WHEN check_violation THEN
    RAISE EXCEPTION 'not a limit: % with % running jobs, % jobs in % seconds, burst %', quote_literal(left(limit_name, 100)),
        change_limit.max_running, change_limit.rate_jobs, change_limit.rate_seconds, change_limit.burst USING ERRCODE = 'FL005',
        HINT = 'Name it queue:NAME, task:NAME or key:NAME. max_running is 0 to 1000000; a rate has jobs and seconds.';
END $$;

-- Applies a limit, after it was written or a task was bound to it: running jobs count towards it, and waiting jobs that now have room
-- are due again. Running jobs that are too many after a reduction are not stopped. Called with the limits locked.
CREATE OR REPLACE FUNCTION faultline.apply_limit(limit_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM faultline.limits AS l WHERE l.name = limit_name AND l.max_running IS NOT NULL;
    IF FOUND THEN -- running jobs to which it did not apply before
        INSERT INTO faultline.places (limit_key, job_id)
        SELECT a.limit_key, j.id FROM faultline.jobs AS j, faultline.limits_of(j) AS a
        WHERE j.state = 'running' AND a.name = limit_name -- without waiting for a commit that is deleting the place
          AND NOT EXISTS (SELECT FROM faultline.places AS p WHERE p.limit_key = a.limit_key AND p.job_id = j.id)
        ON CONFLICT DO NOTHING;
        -- So that their ends free the places. repair_limits frees those of jobs that are locked now.
        UPDATE faultline.jobs AS j SET limited = true WHERE j.id = ANY (ARRAY(
            SELECT r.id FROM faultline.jobs AS r WHERE r.state = 'running' AND NOT r.limited
            AND EXISTS (SELECT FROM faultline.limits_of(r) AS a WHERE a.name = limit_name)
            FOR NO KEY UPDATE SKIP LOCKED)) AND j.state = 'running';
    ELSE
        PERFORM faultline.drop_places(limit_name);
    END IF;
    PERFORM faultline.bring_starts_forward(limit_name);
    PERFORM faultline.fill_limit(limit_name);
END $$;

-- Deletes all places under a limit that no longer counts. A place that a commit is deleting is left to it.
CREATE OR REPLACE FUNCTION faultline.drop_places(limit_name text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM faultline.places AS p
    USING (SELECT o.limit_key, o.job_id FROM faultline.places AS o WHERE split_part(o.limit_key, '=', 1) = limit_name
           ORDER BY o.limit_key, o.job_id FOR UPDATE SKIP LOCKED) AS free
    WHERE (p.limit_key, p.job_id) = (free.limit_key, free.job_id)
$$;

-- The next start under a rate is at most one share of the period away. It is later only after the rate was raised, or after the
-- clock was set back. Of one limit all keys are corrected, of all limits those that jobs wait for. Rows that are locked are skipped.
CREATE OR REPLACE FUNCTION faultline.bring_starts_forward(limit_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    keys   text[];
BEGIN
    IF limit_name IS NULL THEN
        keys := ARRAY(SELECT o.limit_key FROM faultline.limit_states AS o WHERE o.is_awaited AND o.next_start_at > moment
                      ORDER BY o.limit_key FOR NO KEY UPDATE SKIP LOCKED);
    ELSE
        keys := ARRAY(SELECT o.limit_key FROM faultline.limit_states AS o
                      WHERE o.limit_key >= limit_name AND o.limit_key < limit_name || '>' -- and the keys, which go on with '='
                        AND split_part(o.limit_key, '=', 1) = limit_name AND o.next_start_at > moment
                      ORDER BY o.limit_key FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    UPDATE faultline.limit_states AS s SET next_start_at = moment + l.share
    FROM (SELECT n.name, make_interval(secs => n.rate_seconds / n.rate_jobs) AS share FROM faultline.limits AS n
          WHERE n.rate_jobs IS NOT NULL AND (limit_name IS NULL OR n.name = limit_name)) AS l
    WHERE s.limit_key = ANY (keys) AND l.name = split_part(s.limit_key, '=', 1) AND s.next_start_at > moment + l.share;
END $$;

-- Lets the next jobs of every line under this limit be claimed, as many as there is room for.
CREATE OR REPLACE FUNCTION faultline.fill_limit(limit_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    line record;
BEGIN
    FOR line IN
        SELECT w.limit_key, CASE WHEN l.name IS NULL THEN 1000
                                 ELSE faultline.room_of(w.limit_key, s, l, clock_timestamp()) END AS room
        FROM faultline.waiting_lines(limit_name, NULL, 10000) AS w (limit_key)
        LEFT JOIN faultline.limits AS l ON l.name = limit_name
        LEFT JOIN faultline.limit_states AS s ON s.limit_key = w.limit_key
    LOOP
        IF line.room > 0 THEN
            PERFORM faultline.unpark(line.limit_key, line.room::integer);
        END IF;
    END LOOP;
END $$;

-- The keys that jobs wait for, of one limit or of all, after this one: one index entry is read for each.
CREATE OR REPLACE FUNCTION faultline.waiting_lines(limit_name text, after text, max_keys integer) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    WITH RECURSIVE line (limit_key) AS (
        (SELECT w.limit_key FROM faultline.waiting_jobs AS w
         WHERE w.limit_key >= coalesce(limit_name, '') AND w.limit_key > coalesce(after, '')
         ORDER BY w.limit_key LIMIT 1)
        UNION ALL
        SELECT (SELECT w.limit_key FROM faultline.waiting_jobs AS w WHERE w.limit_key > l.limit_key
                ORDER BY w.limit_key LIMIT 1)
        FROM line AS l
        WHERE l.limit_key IS NOT NULL AND (limit_name IS NULL OR starts_with(l.limit_key, limit_name)))
    SELECT l.limit_key FROM line AS l
    WHERE l.limit_key IS NOT NULL AND (limit_name IS NULL OR split_part(l.limit_key, '=', 1) = limit_name)
    LIMIT max_keys
$$;

-- Sets a limit for an operator; for a limit of the kind 'key', optionally also a task and the argument that is its key. Code that
-- declares other values does not change it again until reset_limit.
CREATE OR REPLACE FUNCTION faultline.set_limit(
    limit_name text, max_running integer DEFAULT NULL, rate_jobs integer DEFAULT NULL, rate_seconds double precision DEFAULT NULL,
    burst integer DEFAULT NULL, task text DEFAULT NULL, argument text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM faultline.lock_limits();
    IF set_limit.task IS NOT NULL THEN
        PERFORM faultline.bind_argument(set_limit.limit_name, set_limit.task, set_limit.argument, NULL, 'operator');
    END IF;
    PERFORM faultline.change_limit(set_limit.limit_name, set_limit.max_running, set_limit.rate_jobs, set_limit.rate_seconds,
                                   set_limit.burst, 'operator');
    PERFORM faultline.write_audit('set limit', 'limit ' || set_limit.limit_name, 'done', detail => concat_ws(', ',
        set_limit.max_running || ' running', set_limit.rate_jobs || ' jobs in ' || set_limit.rate_seconds || ' s'));
END $$;

-- Removes a limit; or, if code declares it, gives it the declared values again. Its waiting jobs are due again, here or, if they are
-- many, within seconds by repair_limits.
CREATE OR REPLACE FUNCTION faultline.reset_limit(limit_name text) RETURNS text -- declared | removed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    code jsonb;
BEGIN
    PERFORM faultline.lock_limits();
    SELECT coalesce(l.declared, 'null') INTO code FROM faultline.limits AS l WHERE l.name = reset_limit.limit_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no limit %', quote_literal(left(reset_limit.limit_name, 210))
            USING ERRCODE = 'FL012', HINT = 'List the limits: faultline limits list';
    ELSIF code <> 'null' THEN
        DELETE FROM faultline.limit_arguments AS a WHERE a.limit_name = reset_limit.limit_name AND a.declared IS NULL;
        UPDATE faultline.limit_arguments AS a
        SET argument = a.declared ->> 'argument', fallback = a.declared ->> 'fallback', changed_by = 'code'
        WHERE a.limit_name = reset_limit.limit_name AND a.changed_by = 'operator';
        PERFORM faultline.change_limit(
            reset_limit.limit_name, (code ->> 'max_running')::integer, (code ->> 'rate_jobs')::integer,
            (code ->> 'rate_seconds')::double precision, (code ->> 'burst')::integer, 'code');
    ELSE
        DELETE FROM faultline.limits AS l WHERE l.name = reset_limit.limit_name;
        DELETE FROM faultline.limit_arguments AS a WHERE a.limit_name = reset_limit.limit_name;
        PERFORM faultline.drop_places(reset_limit.limit_name);
        PERFORM faultline.fill_limit(reset_limit.limit_name);
    END IF;
    PERFORM faultline.write_audit('reset limit', 'limit ' || reset_limit.limit_name, 'done');
    RETURN CASE WHEN code <> 'null' THEN 'declared' ELSE 'removed' END;
END $$;

-- Makes the value of a task's argument its key under a limit of the kind 'key', or changes the argument. An argument that an operator
-- has chosen stays when code declares another one. Called with the limits locked.
CREATE OR REPLACE FUNCTION faultline.bind_argument(limit_name text, task text, argument text, fallback text, changed_by text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    code jsonb := CASE bind_argument.changed_by WHEN 'code' THEN
        jsonb_build_object('argument', bind_argument.argument, 'fallback', left(bind_argument.fallback, 200)) END;
BEGIN
    IF NOT starts_with(bind_argument.limit_name, 'key:') THEN
        RAISE EXCEPTION 'the limit % has no key', quote_literal(left(bind_argument.limit_name, 210))
            USING ERRCODE = 'FL005', HINT = 'Name it key:NAME.';
    END IF;
    INSERT INTO faultline.limit_arguments AS a (task, limit_name, argument, fallback, changed_by, declared)
    VALUES (bind_argument.task, bind_argument.limit_name, bind_argument.argument, left(bind_argument.fallback, 200),
            bind_argument.changed_by, code)
    ON CONFLICT ON CONSTRAINT limit_arguments_pkey DO UPDATE
    SET declared = coalesce(excluded.declared, a.declared),
        argument = CASE WHEN code IS NOT NULL AND a.changed_by = 'operator' THEN a.argument ELSE excluded.argument END,
        fallback = CASE WHEN code IS NOT NULL AND a.changed_by = 'operator' THEN a.fallback ELSE excluded.fallback END,
        changed_by = CASE WHEN a.changed_by = 'operator' THEN 'operator' ELSE excluded.changed_by END;
END $$;

-- Declares the limits of an application's code: {"task:shop.charge": {"max_running": 3}, …}, each with the names of change_limit, and
-- the arguments of keyed limits: [{"limit_name": …, "task": …, "argument": …, "fallback": …}, …]. A worker calls it when it starts,
-- before its first claim. Unchanged limits cost a look, and an operator's values stay.
CREATE OR REPLACE FUNCTION faultline.declare_limits(limits jsonb, arguments jsonb DEFAULT '[]')
RETURNS SETOF text -- the names of those that it changed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed text[] := ARRAY(
        SELECT g.key COLLATE "C" FROM jsonb_each(limits) AS g LEFT JOIN faultline.limits AS l ON l.name = g.key
        WHERE l.declared IS DISTINCT FROM g.value
        UNION
        SELECT b.limit_name FROM jsonb_to_recordset(arguments) AS b (limit_name text, task text, argument text, fallback text)
        LEFT JOIN faultline.limit_arguments AS a ON (a.task, a.limit_name) = (b.task, b.limit_name)
        WHERE a.declared IS DISTINCT FROM jsonb_build_object('argument', b.argument, 'fallback', left(b.fallback, 200))
        ORDER BY 1);
    wanted  record;
BEGIN
    IF changed = '{}' THEN
        RETURN;
    END IF;
    PERFORM faultline.lock_limits();
    PERFORM faultline.bind_argument(b.limit_name, b.task, b.argument, b.fallback, 'code')
    FROM jsonb_to_recordset(arguments) AS b (limit_name text, task text, argument text, fallback text);
    FOR wanted IN SELECT c.name, limits -> c.name AS code FROM unnest(changed) AS c (name) LOOP
        IF wanted.code IS NULL OR EXISTS (SELECT FROM faultline.limits AS l WHERE l.name = wanted.name AND l.changed_by = 'operator') THEN
            PERFORM faultline.apply_limit(wanted.name); -- to the running jobs of a task that is bound to it now
        ELSE
            PERFORM faultline.change_limit(
                wanted.name, (wanted.code ->> 'max_running')::integer, (wanted.code ->> 'rate_jobs')::integer,
                (wanted.code ->> 'rate_seconds')::double precision, (wanted.code ->> 'burst')::integer, 'code');
        END IF;
        UPDATE faultline.limits AS l SET declared = wanted.code WHERE l.name = wanted.name AND wanted.code IS NOT NULL;
    END LOOP;
    RETURN QUERY SELECT unnest(changed);
END $$;
