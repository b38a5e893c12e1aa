-- Enqueueing: one job or many, with or without idempotency keys.

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
    ids        uuid[] := ARRAY(SELECT faultline.uuid7(t.moment) FROM (
                            SELECT clock_timestamp() AS moment FROM generate_series(1, cardinality(payloads))) AS t);
    task_name  faultline.task_name := task; -- checked once, not for every row
    queue_name faultline.queue_name := queue;
    other      record;
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
        SELECT given.key, j.id INTO other
        FROM unnest(payloads, idempotency_keys) AS given (payload, key)
        LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key
        WHERE given.key IS NOT NULL AND (j.task = enqueue_many.task AND j.payload = given.payload) IS NOT TRUE LIMIT 1;
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
            FROM unnest(ids, idempotency_keys) WITH ORDINALITY AS given (id, key, ordinal)
            LEFT JOIN faultline.jobs AS j ON j.idempotency_key = given.key ORDER BY given.ordinal;
    END IF;
    IF coalesce(run_at <= clock_timestamp(), true) THEN
        PERFORM faultline.wake(enqueue_many.queue);
    END IF;
END $$;

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
