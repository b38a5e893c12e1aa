-- Schedules: enqueue a job once for each planned time, with any number of schedulers.
--
-- Reconcilers act as schedulers. One reads the due rows, computes the planned times in Python, and calls fire_schedule. Any
-- number may do so at once, and each may die, freeze or be cut off at any step. Three rules keep a time from firing twice:
--   1. fire_schedule locks the schedule's row and compares its revision and next_fire_at with those that the caller computed
--      from. It inserts the jobs and advances next_fire_at in one transaction, so a second caller finds another next_fire_at.
--   2. schedule_firings has one row per planned time, by its primary key. It holds after a clock set back, after a change of the
--      schedule, and after the job was purged.
--   3. The job's idempotency key is the schedule and the planned time.
-- A scheduler never waits for a lock, so that a frozen one holds up only the schedule whose row it has locked.

-- ── Firing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The schedule's row, locked; NULLs if another session has locked it, or if it is not as the caller read it.
CREATE OR REPLACE FUNCTION faultline.lock_schedule(name text, revision bigint, expected_next_fire_at timestamptz)
RETURNS faultline.schedules
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schedule faultline.schedules;
BEGIN
    SELECT * INTO schedule FROM faultline.schedules AS s WHERE s.name = lock_schedule.name FOR UPDATE SKIP LOCKED;
    IF schedule.revision = lock_schedule.revision AND schedule.paused_at IS NULL
       AND schedule.next_fire_at IS NOT DISTINCT FROM expected_next_fire_at THEN
        RETURN schedule;
    END IF;
    RETURN NULL;
END $$;

-- Enqueues the job of a due schedule, once for each time in `planned`, and advances the schedule to `new_next_fire_at`. Of the due
-- times that do not fire, `newest_skipped` is the last one and `skipped` their number. Does nothing and returns no
-- row if another scheduler was first, if the schedule has changed, or if it is not due by the database's clock.
-- A time that fired before, under an earlier definition or before the clock was set back, does not fire again. The job is due at
-- its planned time plus the jitter, which is computed from name and time, so that it does not depend on who fires.
CREATE OR REPLACE FUNCTION faultline.fire_schedule(
    name text, revision bigint, expected_next_fire_at timestamptz, planned timestamptz[], new_next_fire_at timestamptz,
    skipped integer DEFAULT 0, newest_skipped timestamptz DEFAULT NULL)
RETURNS TABLE (fired_times timestamptz[], job_ids uuid[], late_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules;
    moment   timestamptz := clock_timestamp();
    newest   timestamptz := greatest(newest_skipped, (SELECT max(t) FROM unnest(planned) AS t));
BEGIN
    IF expected_next_fire_at > moment OR newest > moment THEN
        RETURN;
    END IF;
    IF (expected_next_fire_at IS NOT NULL AND newest >= expected_next_fire_at AND new_next_fire_at > newest
        AND cardinality(planned) <= 1000 AND skipped >= 0 AND (skipped > 0) = (newest_skipped IS NOT NULL)
        AND NOT EXISTS (SELECT FROM unnest(planned) AS t WHERE t IS NULL OR t < expected_next_fire_at)) IS NOT TRUE THEN
        RAISE EXCEPTION 'the schedule % cannot fire at %', quote_literal(fire_schedule.name), planned USING ERRCODE = 'FL005',
            HINT = 'Planned times are at most 1000, from next_fire_at on, and the new next_fire_at is later.';
    END IF;
    schedule := faultline.lock_schedule(fire_schedule.name, fire_schedule.revision, expected_next_fire_at);
    IF schedule.name IS NULL THEN
        RETURN;
    END IF;
    SELECT coalesce(array_agg(t ORDER BY t), '{}') INTO fired_times
    FROM unnest(planned) AS t
    WHERE NOT EXISTS (SELECT FROM faultline.schedule_firings AS f WHERE f.schedule = schedule.name AND f.planned_at = t);
    job_ids := faultline.enqueue_firings(schedule, fired_times, 'fired');
    IF newest_skipped IS NOT NULL THEN
        INSERT INTO faultline.schedule_firings AS f (schedule, planned_at, outcome, skipped)
        VALUES (schedule.name, newest_skipped, 'skipped', fire_schedule.skipped)
        ON CONFLICT DO NOTHING;
    END IF;
    UPDATE faultline.schedules AS s
    SET next_fire_at = new_next_fire_at, decided_until = newest, last_planned_at = greatest(s.last_planned_at, newest), last_error = NULL,
        last_job_id = coalesce(job_ids[cardinality(job_ids)], s.last_job_id)
    WHERE s.name = schedule.name;
    late_seconds := extract(epoch FROM moment - fired_times[cardinality(fired_times)]);
    RETURN NEXT;
END $$;

-- Inserts a job and a firing for each of these times. The caller has locked the schedule's row. A job that has the key already was
-- enqueued by a producer who chose that key: no second job is made, and `faultline verify` reports it.
CREATE OR REPLACE FUNCTION faultline.enqueue_firings(schedule faultline.schedules, times timestamptz[], outcome text)
RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    keys   text[] := ARRAY(
        SELECT 'schedule:' || schedule.name || ':' || to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        FROM unnest(times) AS t);
    found  uuid[];
BEGIN
    INSERT INTO faultline.jobs (task, queue, priority, max_attempts, payload, next_run_at, expires_at, overrides, idempotency_key,
                                scheduled_for, tags)
    SELECT schedule.task, schedule.queue, schedule.priority, schedule.max_attempts, schedule.payload, due.due_at,
           CASE WHEN schedule.expires_in_seconds IS NOT NULL
                THEN greatest(due.due_at, moment) + make_interval(secs => schedule.expires_in_seconds) END,
           schedule.overrides, given.key, given.planned_at, schedule.tags
    FROM unnest(times, keys) AS given (planned_at, key)
    CROSS JOIN LATERAL (
        SELECT given.planned_at
               + make_interval(secs => schedule.jitter_seconds * (hashtextextended(given.key, 0) & 1048575) / 1048576) AS due_at)
        AS due
    ORDER BY given.planned_at
    ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    found := ARRAY(SELECT j.id FROM unnest(keys) WITH ORDINALITY AS given (key, ordinal)
                   JOIN faultline.jobs AS j ON j.idempotency_key = given.key ORDER BY given.ordinal);
    INSERT INTO faultline.schedule_firings (schedule, planned_at, outcome, job_id)
    SELECT schedule.name, given.planned_at, enqueue_firings.outcome, given.job_id
    FROM unnest(times, found) AS given (planned_at, job_id);
    IF cardinality(times) > 0 THEN
        PERFORM faultline.wake(schedule.queue, cardinality(times));
    END IF;
    RETURN found;
END $$;

-- Sets the next time of a schedule that has none yet, or whose next time lies further ahead than its interval since the clock was
-- set back (`reanchored`: its planned times are counted from now on).
CREATE OR REPLACE FUNCTION faultline.plan_schedule(
    name text, revision bigint, expected_next_fire_at timestamptz, new_next_fire_at timestamptz, reanchored timestamptz DEFAULT NULL)
RETURNS boolean -- false: another scheduler was first, or the schedule has changed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules := faultline.lock_schedule(plan_schedule.name, plan_schedule.revision, expected_next_fire_at);
BEGIN
    IF schedule.name IS NULL OR (expected_next_fire_at IS NOT NULL AND (
           expected_next_fire_at > clock_timestamp() + make_interval(secs => schedule.every_seconds)) IS NOT TRUE) THEN
        RETURN false;
    END IF;
    UPDATE faultline.schedules AS s
    SET next_fire_at = new_next_fire_at, last_error = NULL,
        reanchored_at = coalesce(date_trunc('second', reanchored), s.reanchored_at),
        decided_until = coalesce(reanchored, s.decided_until)
    WHERE s.name = schedule.name;
    RETURN true;
END $$;

-- Records why the next time of a schedule cannot be computed. The schedule does not advance, and is tried again.
CREATE OR REPLACE FUNCTION faultline.report_schedule_error(name text, revision bigint, error text) RETURNS boolean -- whether it is new
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE faultline.schedules AS s SET last_error = left(error, 1000)
    WHERE s.name = (SELECT o.name FROM faultline.schedules AS o
                    WHERE o.name = report_schedule_error.name AND o.revision = report_schedule_error.revision
                      AND o.last_error IS DISTINCT FROM left(error, 1000) FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- ── Definitions ────────────────────────────────────────────────────────────────────────────────────────────────────

-- Inserts or changes a schedule. `definition` is an object with the names of the columns below. A change of when it fires makes
-- the times count from now; a change of the job alone leaves the next time as it is. A pause stays. Returns what it did.
CREATE OR REPLACE FUNCTION faultline.put_schedule(definition jsonb, declared_by text) RETURNS text -- added | changed | unchanged
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    given  faultline.schedules;
    former faultline.schedules;
    other  text;
    fires_as_before boolean;
BEGIN
    SELECT k INTO other FROM jsonb_object_keys(definition) AS k
    WHERE k <> ALL (ARRAY['name', 'cron', 'every_seconds', 'anchor', 'time_zone', 'task', 'payload', 'queue', 'priority',
                          'max_attempts', 'expires_in_seconds', 'overrides', 'missed', 'missed_limit', 'jitter_seconds',
                          'tags']) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a schedule has no %', quote_literal(left(other, 100)) USING ERRCODE = 'FL005',
            HINT = 'Its fields are the columns of faultline.schedules that say when it fires and what it enqueues.';
    END IF;
    given := jsonb_populate_record(NULL::faultline.schedules, jsonb_build_object(
        'anchor', '1970-01-01T00:00:00Z', 'time_zone', 'UTC', 'payload', '{}'::jsonb, 'queue', 'default', 'priority', 5,
        'max_attempts', 10, 'missed', 'once', 'missed_limit', 100, 'jitter_seconds', 0, 'revision', 1, 'declared_by', declared_by,
        'decided_until', moment, 'created_at', moment, 'changed_at', moment) || jsonb_strip_nulls(definition)
        || CASE WHEN definition ? 'payload' THEN jsonb_build_object('payload', definition -> 'payload') ELSE '{}' END);
    given.last_planned_at := (SELECT max(f.planned_at) FROM faultline.schedule_firings AS f
                              WHERE f.schedule = given.name AND f.outcome <> 'manual'); -- of one that was removed
    INSERT INTO faultline.schedules SELECT given.* ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN 'added';
    END IF;
    SELECT * INTO former FROM faultline.schedules AS s WHERE s.name = given.name;
    fires_as_before := (former.cron, former.every_seconds, former.anchor, former.time_zone)
                       IS NOT DISTINCT FROM (given.cron, given.every_seconds, given.anchor, given.time_zone);
    IF fires_as_before AND (former.task, former.payload, former.queue, former.priority, former.max_attempts,
                            former.expires_in_seconds, former.overrides, former.missed, former.missed_limit, former.jitter_seconds,
                            former.tags)
       IS NOT DISTINCT FROM (given.task, given.payload, given.queue, given.priority, given.max_attempts,
                             given.expires_in_seconds, given.overrides, given.missed, given.missed_limit, given.jitter_seconds,
                             given.tags) THEN
        RETURN 'unchanged';
    END IF;
    UPDATE faultline.schedules AS s
    SET cron = given.cron, every_seconds = given.every_seconds, anchor = given.anchor, time_zone = given.time_zone,
        task = given.task, payload = given.payload, queue = given.queue, priority = given.priority,
        max_attempts = given.max_attempts, expires_in_seconds = given.expires_in_seconds, overrides = given.overrides,
        missed = given.missed, missed_limit = given.missed_limit, jitter_seconds = given.jitter_seconds, tags = given.tags,
        next_fire_at = CASE WHEN fires_as_before THEN s.next_fire_at END,
        decided_until = CASE WHEN fires_as_before THEN s.decided_until ELSE moment END,
        reanchored_at = CASE WHEN fires_as_before THEN s.reanchored_at END,
        revision = s.revision + 1, changed_at = moment, last_error = NULL
    WHERE s.name = given.name;
    RETURN 'changed';
END $$;

-- Makes the table agree with the schedules that a worker's code declares; called when the worker registers. Rows are locked in the
-- order of their names. A schedule of an operator that has the same name stays as it is (refused). A schedule that no worker
-- declares any more stays too, and is reported: see undeclared_schedules.
CREATE OR REPLACE FUNCTION faultline.declare_schedules(worker text, definitions jsonb)
RETURNS TABLE (name text, outcome text) -- added | changed | unchanged | refused
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    definition jsonb;
BEGIN
    FOR definition IN SELECT d FROM jsonb_array_elements(definitions) AS d ORDER BY d ->> 'name' LOOP
        name := definition ->> 'name';
        IF EXISTS (SELECT FROM faultline.schedules AS s WHERE s.name = definition ->> 'name' AND s.declared_by = 'operator') THEN
            outcome := 'refused';
        ELSE
            outcome := faultline.put_schedule(definition, 'code');
        END IF;
        RETURN NEXT;
    END LOOP;
    UPDATE faultline.workers AS w
    SET schedules = ARRAY(SELECT d ->> 'name' FROM jsonb_array_elements(definitions) AS d ORDER BY 1)
    WHERE w.id = worker;
END $$;

-- Schedules of code that no live worker declares. They go on firing until an operator removes or pauses them.
CREATE OR REPLACE FUNCTION faultline.undeclared_schedules() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.name FROM faultline.schedules AS s
    WHERE s.declared_by = 'code' AND NOT EXISTS (
        SELECT FROM faultline.workers AS w WHERE w.lost_at IS NULL AND s.name = ANY (w.schedules))
    ORDER BY s.name
$$;

-- ── Operators ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- Adds a schedule, or with `replace` changes one that an operator added. A schedule enqueues jobs, so the account needs the right
-- to enqueue too: an operator alone has it for no other job either.
CREATE OR REPLACE FUNCTION faultline.add_schedule(definition jsonb, replace boolean DEFAULT false)
RETURNS text -- added | changed | unchanged
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name    text := definition ->> 'name';
    is_code boolean := EXISTS (SELECT FROM faultline.schedules AS s WHERE s.name = definition ->> 'name' AND s.declared_by = 'code');
    outcome text;
BEGIN
    IF NOT has_function_privilege(session_user, 'faultline.enqueue_jobs(jsonb, text)', 'EXECUTE') THEN
        RAISE EXCEPTION 'account % may not add a schedule, because it may not enqueue jobs', quote_ident(session_user)
            USING ERRCODE = 'insufficient_privilege', HINT = 'Use an account that is a member of faultline_producer too.';
    END IF;
    IF NOT is_code THEN
        outcome := faultline.put_schedule(definition, 'operator');
    END IF;
    IF is_code OR (outcome <> 'added' AND NOT replace) THEN
        RAISE EXCEPTION 'there is already a schedule %', quote_literal(name) USING ERRCODE = 'FL002',
            HINT = CASE WHEN is_code THEN 'Code declares it: change it there, or choose another name.'
                        ELSE 'To change it, replace it: faultline schedules add --replace' END;
    END IF;
    PERFORM faultline.write_audit('add', 'schedule ' || name,
                                  CASE outcome WHEN 'unchanged' THEN 'unchanged' ELSE 'done' END, outcome,
                                  coalesce(definition ->> 'cron', 'every ' || (definition ->> 'every_seconds') || ' s'));
    RETURN outcome;
END $$;

-- The row of a schedule, locked for an operator's action. Waits for a firing in progress, which is short.
CREATE OR REPLACE FUNCTION faultline.find_schedule(name text) RETURNS faultline.schedules
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schedule faultline.schedules;
BEGIN
    SELECT * INTO schedule FROM faultline.schedules AS s WHERE s.name = find_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', quote_literal(left(find_schedule.name, 200)) USING ERRCODE = 'FL010',
            HINT = 'List the schedules: faultline schedules list';
    END IF;
    RETURN schedule;
END $$;

-- Stops a schedule from firing. Times that pass meanwhile never fire. Jobs that it enqueued before run.
CREATE OR REPLACE FUNCTION faultline.pause_schedule(name text, reason text DEFAULT NULL) RETURNS boolean -- false: it was paused already
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules := faultline.find_schedule(pause_schedule.name);
BEGIN
    IF schedule.paused_at IS NULL THEN
        UPDATE faultline.schedules AS s
        SET paused_at = clock_timestamp(), paused_reason = left(reason, 1000), revision = s.revision + 1
        WHERE s.name = schedule.name;
    END IF;
    PERFORM faultline.write_audit('pause', 'schedule ' || schedule.name,
                                  CASE WHEN schedule.paused_at IS NULL THEN 'done' ELSE 'unchanged' END, detail => reason);
    RETURN schedule.paused_at IS NULL;
END $$;

-- Lets a schedule fire again, at its first time from now on.
CREATE OR REPLACE FUNCTION faultline.resume_schedule(name text) RETURNS boolean -- whether it was paused
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules := faultline.find_schedule(resume_schedule.name);
BEGIN
    IF schedule.paused_at IS NOT NULL THEN
        UPDATE faultline.schedules AS s
        SET paused_at = NULL, paused_reason = NULL, next_fire_at = NULL, decided_until = clock_timestamp(),
            revision = s.revision + 1
        WHERE s.name = schedule.name;
    END IF;
    PERFORM faultline.write_audit('resume', 'schedule ' || schedule.name,
                                  CASE WHEN schedule.paused_at IS NULL THEN 'unchanged' ELSE 'done' END);
    RETURN schedule.paused_at IS NOT NULL;
END $$;

-- Enqueues the schedule's job at once, beside its planned times; also of a paused schedule. Planned times are whole seconds, and
-- this one is not, so that it cannot be one of them.
CREATE OR REPLACE FUNCTION faultline.run_schedule(name text) RETURNS uuid -- the job
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules := faultline.find_schedule(run_schedule.name);
    moment   timestamptz := clock_timestamp();
    job_ids  uuid[];
BEGIN
    IF moment = date_trunc('second', moment) THEN
        moment := moment - interval '1 microsecond';
    END IF;
    schedule.jitter_seconds := 0;
    job_ids := faultline.enqueue_firings(schedule, ARRAY[moment], 'manual');
    UPDATE faultline.schedules AS s SET last_job_id = job_ids[1] WHERE s.name = schedule.name;
    PERFORM faultline.write_audit('run', 'schedule ' || schedule.name, 'done', detail => 'job ' || job_ids[1]);
    RETURN job_ids[1];
END $$;

-- Removes a schedule. Its firings stay until retention purges them, so that a schedule that is added again under this name does
-- not fire a time twice. One that a live worker declares is refused: the next worker that starts would add it again.
CREATE OR REPLACE FUNCTION faultline.remove_schedule(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schedule faultline.schedules := faultline.find_schedule(remove_schedule.name);
BEGIN
    IF schedule.declared_by = 'code' AND EXISTS (
           SELECT FROM faultline.workers AS w WHERE w.lost_at IS NULL AND schedule.name = ANY (w.schedules)) THEN
        RAISE EXCEPTION 'workers declare the schedule % in their code', quote_literal(schedule.name) USING ERRCODE = 'FL002',
            HINT = 'Remove it from the code, or pause it: faultline schedules pause';
    END IF;
    DELETE FROM faultline.schedules AS s WHERE s.name = schedule.name;
    PERFORM faultline.write_audit('remove', 'schedule ' || schedule.name, 'done');
END $$;

-- ── Guards and retention ───────────────────────────────────────────────────────────────────────────────────────────

CREATE OR REPLACE FUNCTION faultline.refuse_firing_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'firings are never changed, and removed by retention alone (%)', TG_OP
        USING ERRCODE = 'FL002', HINT = 'To remove old firings, use faultline.purge_firings().';
END $$;

CREATE OR REPLACE TRIGGER guard_update BEFORE UPDATE ON faultline.schedule_firings FOR EACH ROW
EXECUTE FUNCTION faultline.refuse_firing_change();

CREATE OR REPLACE TRIGGER guard_delete BEFORE DELETE ON faultline.schedule_firings FOR EACH ROW
WHEN (current_setting('faultline.verb', true) IS DISTINCT FROM 'retention')
EXECUTE FUNCTION faultline.refuse_firing_change();

CREATE OR REPLACE TRIGGER guard_truncate BEFORE TRUNCATE ON faultline.schedule_firings FOR EACH STATEMENT
EXECUTE FUNCTION faultline.refuse_firing_change();

-- Purges old firings, in the order of their key. Keeps the newest one of each schedule, which says when it last fired, and those
-- whose job exists.
CREATE OR REPLACE FUNCTION faultline.purge_firings(
    keep interval, after jsonb DEFAULT NULL, batch_size integer DEFAULT 500, dry_run boolean DEFAULT false)
RETURNS TABLE (entries integer, next jsonb) -- next: where to continue; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    oldest timestamptz := faultline.removed_before(keep, batch_size);
    seen   integer;
    names  text[];
    times  timestamptz[];
BEGIN
    SELECT count(*), array_agg(p.schedule ORDER BY p.schedule, p.planned_at), array_agg(p.planned_at ORDER BY p.schedule, p.planned_at)
    INTO seen, names, times
    FROM (SELECT f.schedule, f.planned_at FROM faultline.schedule_firings AS f
          WHERE after IS NULL OR (f.schedule, f.planned_at) > (after ->> 0, (after ->> 1)::timestamptz)
          ORDER BY f.schedule, f.planned_at LIMIT batch_size) AS p;
    next := CASE WHEN seen = batch_size THEN jsonb_build_array(names[seen], times[seen]) END;
    SELECT count(*), array_agg(f.schedule), array_agg(f.planned_at) INTO entries, names, times
    FROM unnest(names, times) AS p (schedule, planned_at)
    JOIN faultline.schedule_firings AS f ON f.schedule = p.schedule AND f.planned_at = p.planned_at
    WHERE f.fired_at < oldest
      AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = f.job_id)
      AND (NOT EXISTS (SELECT FROM faultline.schedules AS s WHERE s.name = f.schedule)
           OR EXISTS (SELECT FROM faultline.schedule_firings AS n
                      WHERE n.schedule = f.schedule AND n.planned_at > f.planned_at
                        AND (n.outcome <> 'manual' OR f.outcome = 'manual')));
    IF NOT dry_run AND entries > 0 THEN
        PERFORM set_config('faultline.verb', 'retention', true);
        DELETE FROM faultline.schedule_firings AS f USING unnest(names, times) AS p (schedule, planned_at)
        WHERE f.schedule = p.schedule AND f.planned_at = p.planned_at;
        PERFORM set_config('faultline.verb', '', true);
        PERFORM faultline.audit_purge('firings', entries);
    END IF;
    RETURN NEXT;
END $$;
