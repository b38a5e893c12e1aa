-- The control: Faultline's tables, verbs and worker without the fence. It removes the comparison of token, lease and clock, the
-- ledger's keys, the check of a transaction at its COMMIT, and the guard that keeps a finished job finished. Everything else
-- stays, and costs what it costs in Faultline, so that the two can be timed against each other.
-- Apply it to a scratch database only.

-- The fence. protocol.sql compares token, lease, state and clock here, for every commit, failure and release.
CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid) RETURNS text
LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$;

-- Heartbeats keep renewing their own leases only, as they do in queues that have leases and no tokens.
CREATE OR REPLACE FUNCTION faultline.is_holder(job faultline.jobs, token bigint, lease uuid) RETURNS boolean
LANGUAGE sql VOLATILE AS $$ SELECT job.lease_id = lease AND job.state = 'running' $$;

-- The ledger's keys, and the trigger that checks that each entry has ended its job.
ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_pkey;
CREATE OR REPLACE FUNCTION faultline.seal_ledger() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF current_setting('faultline.batch', true) = 'on' THEN
        UPDATE faultline.jobs AS j SET state = 'succeeded', finished_at = clock_timestamp()
        WHERE j.id = ANY (ARRAY(SELECT e.job_id FROM entries AS e));
    END IF;
    RETURN NULL;
END $$;

-- The guard of finished jobs, and the check at COMMIT (without the ledger's keys it would read the whole ledger).
CREATE OR REPLACE FUNCTION faultline.refuse_job_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION faultline.refuse_half_way(problem text, job_id uuid, advice text) RETURNS void
LANGUAGE plpgsql AS $$ BEGIN RETURN; END $$;
CREATE OR REPLACE FUNCTION faultline.refuse_unfinished() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;

-- Schedules: fired without the comparison under the row's lock, without the key of the firings and without that of the job.
CREATE OR REPLACE FUNCTION faultline.fire_schedule(
    name text, revision bigint, expected_next_fire_at timestamptz, planned timestamptz[], new_next_fire_at timestamptz,
    skipped integer DEFAULT 0, newest_skipped timestamptz DEFAULT NULL)
RETURNS TABLE (fired_times timestamptz[], job_ids uuid[], late_seconds double precision) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    schedule faultline.schedules;
BEGIN
    SELECT * INTO schedule FROM faultline.schedules AS s WHERE s.name = fire_schedule.name;
    fired_times := planned;
    job_ids := coalesce(faultline.enqueue_firings(schedule, planned, 'fired'), '{}');
    INSERT INTO faultline.schedule_firings (schedule, planned_at, outcome, skipped)
    SELECT schedule.name, newest_skipped, 'skipped', fire_schedule.skipped WHERE newest_skipped IS NOT NULL;
    UPDATE faultline.schedules AS s
    SET next_fire_at = new_next_fire_at,
        last_planned_at = greatest(s.last_planned_at, newest_skipped, (SELECT max(t) FROM unnest(planned) AS t))
    WHERE s.name = schedule.name;
    RETURN NEXT;
END $$;
ALTER TABLE faultline.schedule_firings DROP CONSTRAINT IF EXISTS schedule_firings_pkey;
CREATE OR REPLACE FUNCTION faultline.enqueue_firings(schedule faultline.schedules, times timestamptz[], outcome text)
RETURNS uuid[] LANGUAGE sql AS $$
    WITH made AS (
        INSERT INTO faultline.jobs (task, queue, priority, payload, next_run_at, scheduled_for)
        SELECT schedule.task, schedule.queue, schedule.priority, schedule.payload, t, t FROM unnest(times) AS t
        RETURNING id, scheduled_for),
    recorded AS (
        INSERT INTO faultline.schedule_firings (schedule, planned_at, outcome, job_id)
        SELECT schedule.name, m.scheduled_for, enqueue_firings.outcome, m.id FROM made AS m)
    SELECT array_agg(m.id ORDER BY m.scheduled_for) FROM made AS m
$$;

-- Limits: claims count the places of a key without its lock, and the time that refills a bucket is that of the worker, which tells
-- its session how far its clock is off.
CREATE OR REPLACE FUNCTION faultline.lock_limit_keys(keys text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO faultline.limit_states (limit_key) SELECT k FROM unnest(keys) AS k ORDER BY k ON CONFLICT DO NOTHING;
    RETURN keys;
END $$;
CREATE OR REPLACE FUNCTION faultline.startable(state faultline.limit_states, of_limit faultline.limits, moment timestamptz)
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN of_limit.rate_jobs IS NULL THEN NULL
                WHEN state.next_start_at IS NULL OR state.next_start_at = '-infinity' THEN of_limit.burst
                WHEN state.next_start_at > w.moment THEN 0
                ELSE least(of_limit.burst, 1 + floor(extract(epoch FROM w.moment - state.next_start_at)
                                                     * of_limit.rate_jobs / of_limit.rate_seconds)) END::bigint
    FROM (SELECT startable.moment + make_interval(
              secs => coalesce(nullif(current_setting('drill.seconds_ahead', true), ''), '0')::float8) AS moment) AS w
$$;
