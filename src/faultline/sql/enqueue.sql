-- Enqueueing: one job or many, with or without idempotency keys.

-- The same layout as uuid7(moment) in schema.sql, with the first 7 bytes of `noise` as its random bits. For many ids at once: strong
-- random numbers took a third of the time of a bulk enqueue, so a call draws one, and hashes it with the number of each job. Without
-- a SET clause, so that PostgreSQL inlines it; its callers have set the search path.
CREATE OR REPLACE FUNCTION faultline.uuid7(moment timestamptz, noise bytea) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        int8send(((date_part('epoch', moment) * 1e6)::bigint / 1000 << 16)                          -- milliseconds
            | 28672 | (date_part('epoch', moment) * 1e6)::bigint % 1000 * 4096 / 1000)              -- version 7, the rest
        || '\x80' || substring(noise FROM 1 FOR 7), 'hex')::uuid                                    -- variant, random bits
$$;

-- Inserts queued jobs. A job that has the same idempotency key, task and payload already is returned instead (existing).
-- Safe because a unique index decides which caller is first: a second caller with the same key waits for the first one's
-- transaction, then finds its job. Payloads are compared as jsonb, where 1 and 1.0 are equal, and the order of keys is ignored.
CREATE OR REPLACE FUNCTION faultline.enqueue_many(
    task text, payloads jsonb[], queue text DEFAULT 'default', priority integer DEFAULT 5,
    run_at timestamptz DEFAULT NULL, idempotency_keys text[] DEFAULT NULL, max_attempts integer DEFAULT 10,
    trace_context text DEFAULT NULL)
RETURNS TABLE (job_id uuid, existing boolean) -- in the order of the payloads
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    secret     bytea := uuid_send(gen_random_uuid());
    ids        uuid[] := ARRAY(SELECT faultline.uuid7(t.moment, sha256(secret || int4send(t.number))) FROM (
                            SELECT clock_timestamp() AS moment, g AS number FROM generate_series(1, cardinality(payloads)) AS g) AS t);
    task_name  faultline.task_name := task; -- checked once, not for every row
    queue_name faultline.queue_name := queue;
BEGIN
    IF cardinality(idempotency_keys) <> cardinality(payloads) THEN
        RAISE EXCEPTION '% payloads but % idempotency keys', cardinality(payloads), cardinality(idempotency_keys)
            USING ERRCODE = 'FL005', HINT = 'Give one key for each payload, NULL where there is none.';
    END IF;
    IF idempotency_keys IS NULL THEN -- there can be no conflict, and ON CONFLICT costs a fifth of an insert
        INSERT INTO faultline.jobs (id, task, queue, priority, max_attempts, payload, next_run_at, trace_context)
        SELECT given.id, task_name, queue_name, enqueue_many.priority, enqueue_many.max_attempts,
               given.payload, coalesce(run_at, clock_timestamp()), enqueue_many.trace_context
        FROM unnest(ids, payloads) AS given (id, payload);
        RETURN QUERY SELECT id, false FROM unnest(ids) AS id;
    ELSE -- sorted: two callers with the same keys in opposite orders would deadlock
        INSERT INTO faultline.jobs
            (id, task, queue, priority, max_attempts, payload, next_run_at, trace_context, idempotency_key)
        SELECT given.id, task_name, queue_name, enqueue_many.priority, enqueue_many.max_attempts,
               given.payload, coalesce(run_at, clock_timestamp()), enqueue_many.trace_context, given.key
        FROM unnest(ids, payloads, idempotency_keys) WITH ORDINALITY AS given (id, payload, key, ordinal)
        ORDER BY given.key, given.ordinal
        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
        RETURN QUERY
            SELECT * FROM faultline.enqueued_under_keys(ids, array_fill(task, ARRAY[cardinality(ids)]), payloads, idempotency_keys);
    END IF;
    IF coalesce(run_at <= clock_timestamp(), true) THEN
        PERFORM faultline.wake(enqueue_many.queue, cardinality(payloads));
    END IF;
END $$;

-- The jobs that hold these keys after an insert that skipped keys in use: the caller's own, or earlier ones with the same task
-- and payload. Raises FL004 for a key that belongs to another task or payload.
CREATE OR REPLACE FUNCTION faultline.enqueued_under_keys(ids uuid[], tasks text[], payloads jsonb[], keys text[])
RETURNS TABLE (job_id uuid, existing boolean) -- in the order of the ids
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other record;
BEGIN
    SELECT given.key, j.id INTO other
    FROM unnest(tasks, payloads, keys) AS given (task, payload, key)
    LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key
    WHERE given.key IS NOT NULL AND (j.task = given.task AND (
        j.payload = given.payload
        OR EXISTS (SELECT FROM faultline.attempts_log AS a WHERE a.job_id = j.id AND a.outcome IN ('edited', 'replaced')
                   AND a.former_payload = given.payload))) IS NOT TRUE LIMIT 1; -- as it was before it was edited or replaced
    IF FOUND AND other.id IS NULL THEN -- the job that held the key was purged between the two statements
        RAISE EXCEPTION 'the job with idempotency key % was purged meanwhile', quote_literal(other.key)
            USING ERRCODE = 'serialization_failure', HINT = 'Send it again.';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'idempotency key % belongs to another task or payload', quote_literal(other.key) USING
            ERRCODE = 'FL004', DETAIL = json_build_object('job_id', CASE WHEN other.id <> ALL (ids) THEN other.id END)::text,
            HINT = 'Use a new key for new work, or send exactly what was sent before.';
    END IF;
    RETURN QUERY
        SELECT coalesce(j.id, given.id), j.id IS NOT NULL AND j.id <> given.id
        FROM unnest(ids, keys) WITH ORDINALITY AS given (id, key, ordinal)
        LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key ORDER BY given.ordinal;
END $$;

-- Enqueues jobs of any tasks, all or none. `jobs` is an array of objects:
--   {"task": …, "payload": {…}, "queue": …, "priority": …, "max_attempts": …, "run_at": …, "delay": seconds,
--    "expires_in": seconds, "timeout": seconds, "lease": seconds, "idempotency_key": …, "tags": [words],
--    "unique": {"by": [names], "while": "queued" | "unfinished", "on_conflict": "keep" | "replace" | "reschedule", "for": seconds}}
-- Only the task is required. delay and expires_in count from now, by the database's clock. A job that has not started when it
-- expires fails; timeout and lease replace those of the task; unique.sql defines unique. An unknown name is refused, because it may
-- be a typing error. The outcome is queued, existing (the idempotency key's job), kept, replaced or rescheduled (the unique key's).
CREATE OR REPLACE FUNCTION faultline.enqueue_jobs(jobs jsonb, trace_context text DEFAULT NULL)
RETURNS TABLE (job_id uuid, existing boolean, outcome text) -- in the order of the jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment  timestamptz := clock_timestamp();
    secret  bytea := uuid_send(gen_random_uuid());
    ids     uuid[] := ARRAY(SELECT faultline.uuid7(t.moment, sha256(secret || int4send(t.number))) FROM (
                         SELECT clock_timestamp() AS moment, g AS number
                         FROM generate_series(1, faultline.checked_job_count(jobs)) AS g) AS t);
    problem text;
BEGIN
    SELECT format('job %s: %s', g.ordinal - 1, CASE
               WHEN jsonb_typeof(g.job) <> 'object' THEN 'it is not an object'
               WHEN g.job ->> 'task' IS NULL THEN 'it has no task'
               WHEN u.name IS NOT NULL THEN format('%I is not an option', u.name)
               WHEN g.job ->> 'run_at' IS NOT NULL AND g.job ->> 'delay' IS NOT NULL THEN 'run_at and delay exclude each other'
               ELSE 'it would expire before it is due' END)
    INTO problem
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
    LEFT JOIN LATERAL (
        SELECT k.name FROM jsonb_object_keys(CASE WHEN jsonb_typeof(g.job) = 'object' THEN g.job ELSE '{}' END) AS k (name)
        WHERE k.name NOT IN ('task', 'payload', 'queue', 'priority', 'max_attempts', 'run_at', 'delay', 'expires_in', 'timeout',
                             'lease', 'idempotency_key', 'tags', 'unique') LIMIT 1) AS u ON true
    WHERE jsonb_typeof(g.job) <> 'object' OR g.job ->> 'task' IS NULL OR u.name IS NOT NULL
       OR (g.job ->> 'run_at' IS NOT NULL AND g.job ->> 'delay' IS NOT NULL)
       OR (g.job ->> 'expires_in')::double precision <= coalesce((g.job ->> 'delay')::double precision,
              extract(epoch FROM (g.job ->> 'run_at')::timestamptz - moment), 0)
    ORDER BY g.ordinal LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL005',
            HINT = 'Options are queue, priority, max_attempts, run_at, delay, expires_in, timeout, lease, idempotency_key, tags and unique.';
    END IF;
    IF jsonb_path_exists(jobs, '$[*].unique') THEN
        RETURN QUERY SELECT * FROM faultline.enqueue_unique(jobs, ids, moment, enqueue_jobs.trace_context);
    ELSE
        RETURN QUERY SELECT i.job_id, i.existing, CASE WHEN i.existing THEN 'existing' ELSE 'queued' END
                     FROM faultline.insert_jobs(jobs, ids, moment, enqueue_jobs.trace_context) AS i;
    END IF;
END $$;

-- Inserts jobs that enqueue_jobs has checked, with these ids. Its callers have set the search path.
CREATE OR REPLACE FUNCTION faultline.insert_jobs(jobs jsonb, ids uuid[], moment timestamptz, trace_context text)
RETURNS TABLE (job_id uuid, existing boolean) -- in the order of the jobs
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    tasks    text[];
    payloads jsonb[];
    keys     text[];
BEGIN
    INSERT INTO faultline.jobs (id, task, queue, priority, max_attempts, payload, next_run_at, expires_at, overrides,
                                idempotency_key, trace_context, tags)
    SELECT ids[g.ordinal], g.job ->> 'task', coalesce(g.job ->> 'queue', 'default'),
           coalesce((g.job ->> 'priority')::integer, 5), coalesce((g.job ->> 'max_attempts')::integer, 10),
           coalesce(g.job -> 'payload', '{}'),
           faultline.start_of(g.job, moment), faultline.expiry_of(g.job, moment),
           nullif(jsonb_strip_nulls(jsonb_build_object('timeout', g.job -> 'timeout', 'lease', g.job -> 'lease')), '{}'),
           g.job ->> 'idempotency_key', insert_jobs.trace_context, faultline.tags_of(g.job)
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
    ORDER BY g.job ->> 'idempotency_key', g.ordinal -- two callers with the same keys in opposite orders would deadlock
    ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    SELECT array_agg(g.job ->> 'task' ORDER BY g.ordinal), array_agg(coalesce(g.job -> 'payload', '{}') ORDER BY g.ordinal),
           array_agg(g.job ->> 'idempotency_key' ORDER BY g.ordinal)
    INTO tasks, payloads, keys FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal);
    IF array_remove(keys, NULL) = '{}' THEN -- there was no conflict
        RETURN QUERY SELECT id, false FROM unnest(ids) AS id;
    ELSE
        RETURN QUERY SELECT * FROM faultline.enqueued_under_keys(ids, tasks, payloads, keys);
    END IF;
    PERFORM faultline.wake(q.queue, q.due)
    FROM (SELECT coalesce(g.job ->> 'queue', 'default') AS queue, count(*) AS due FROM jsonb_array_elements(jobs) AS g (job)
          WHERE coalesce((g.job ->> 'run_at')::timestamptz <= moment, coalesce((g.job ->> 'delay')::double precision, 0) = 0)
          GROUP BY 1) AS q;
END $$;

-- The tags of a job that checked_job_count has checked, without repetitions and in the order of the alphabet; NULL if it has none.
CREATE OR REPLACE FUNCTION faultline.tags_of(job jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(DISTINCT t.tag COLLATE "C" ORDER BY t.tag COLLATE "C")
    FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(job -> 'tags') = 'array' THEN job -> 'tags' ELSE '[]' END) AS t (tag)
$$;

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

-- The number of these jobs, after a check of the types and ranges of their options: FL005 names the first job that has a wrong
-- one. Without this check the casts of enqueue_jobs would fail with errors that name no job. An option that is null is absent;
-- a payload that is null is not, because it is more likely a mistake of the producer.
CREATE OR REPLACE FUNCTION faultline.checked_job_count(jobs jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem  text;
    starting record;
BEGIN
    IF jsonb_typeof(jobs) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'the jobs are not an array' USING ERRCODE = 'FL005', HINT = '[{"task": "…", "payload": {…}}, …]';
    END IF;
    SELECT format('job %s: %s must be %s', g.ordinal - 1, o.name, r.rule) INTO problem
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
    CROSS JOIN LATERAL jsonb_each(CASE WHEN jsonb_typeof(g.job) = 'object' THEN g.job ELSE '{}' END) AS o (name, value)
    JOIN (VALUES ('payload', 'object', NULL, NULL, 'an object'), ('run_at', 'string', NULL, NULL, 'a string'),
                 ('priority', 'number', 0, 9, 'a whole number from 0 to 9'),
                 ('max_attempts', 'number', 1, 1000, 'a whole number from 1 to 1000'),
                 ('delay', 'number', 0, 3162240000, 'a number of seconds from 0 to 3162240000'),
                 ('expires_in', 'number', 0, 3162240000, 'a number of seconds, more than 0 and at most 3162240000'),
                 ('timeout', 'number', 0, 3162240000, 'a number of seconds, more than 0 and at most 3162240000'),
                 ('lease', 'number', 0.1, 604800, 'a number of seconds from 0.1 to 604800')
         ) AS r (name, type, least, most, rule) ON r.name = o.name
    WHERE (jsonb_typeof(o.value) <> 'null' OR o.name = 'payload')
      AND CASE WHEN jsonb_typeof(o.value) <> r.type THEN true
               WHEN r.type = 'number' THEN
                   o.value::numeric NOT BETWEEN r.least AND r.most
                   OR (o.name IN ('expires_in', 'timeout') AND o.value::numeric = 0)
                   OR (o.name IN ('priority', 'max_attempts') AND scale(o.value::numeric) > 0) END
    ORDER BY g.ordinal, o.name LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL005';
    END IF;
    IF jsonb_path_exists(jobs, '$[*].tags') THEN
        SELECT format('job %s: tags must be a list of up to 20 words', g.ordinal - 1) INTO problem
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
        WHERE jsonb_typeof(g.job) = 'object' AND g.job ? 'tags' AND CASE jsonb_typeof(g.job -> 'tags')
                  WHEN 'array' THEN jsonb_array_length(g.job -> 'tags') > 20 OR EXISTS (
                      SELECT FROM jsonb_array_elements(g.job -> 'tags') AS t (tag)
                      WHERE jsonb_typeof(t.tag) <> 'string' OR t.tag #>> '{}' !~ '^[A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99}$')
                  WHEN 'null' THEN false ELSE true END
        ORDER BY g.ordinal LIMIT 1;
        IF problem IS NOT NULL THEN
            RAISE EXCEPTION '%', problem USING ERRCODE = 'FL005',
                HINT = 'Each has 1 to 100 letters, digits and _.:=/@+-, and begins with a letter, a digit or _.';
        END IF;
    END IF;
    BEGIN
        FOR starting IN
            SELECT g.ordinal, g.job ->> 'run_at' AS run_at FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
            WHERE jsonb_typeof(g.job) = 'object' AND g.job ->> 'run_at' IS NOT NULL
        LOOP
            IF starting.run_at::timestamptz NOT BETWEEN '0001-01-01' AND '9999-01-01' THEN
                RAISE datetime_field_overflow;
            END IF;
        END LOOP;
    EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR invalid_parameter_value THEN -- an unknown time zone
        RAISE EXCEPTION 'job %: run_at must be a date and time from the year 1 to 9999', starting.ordinal - 1
            USING ERRCODE = 'FL005', HINT = '"2026-01-31T09:00:00+01:00"';
    END;
    RETURN jsonb_array_length(jobs);
END $$;
