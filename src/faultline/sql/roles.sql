-- Four roles without login, to be granted to the accounts of your processes: GRANT faultline_worker TO my_worker;
-- None of them can write to a table of Faultline: they call the protocol, which runs as its owner. So even a worker with
-- a bug, or one that is long out of date, cannot go round the fence.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['faultline_producer', 'faultline_worker', 'faultline_inspector', 'faultline_operator'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = name); -- they belong to the whole cluster
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- another migrator was faster
        END;
    END LOOP;
END $$;

GRANT USAGE ON SCHEMA faultline TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;
REVOKE ALL ON ALL TABLES IN SCHEMA faultline FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA faultline FROM PUBLIC;

-- Anyone may look at what Faultline has recorded; payloads are in faultline.jobs, so grant these roles with care.
GRANT SELECT ON ALL TABLES IN SCHEMA faultline
    TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.enqueue(text, jsonb, text, integer, timestamptz, text, integer, text),
    faultline.enqueue_many(text, jsonb[], text, integer, timestamptz, text[], integer, text)
    TO faultline_producer, faultline_worker, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.claim(text, text[], integer, interval, jsonb),
    faultline.heartbeat(text, uuid[], bigint[], uuid[], interval),
    faultline.assert_fence(uuid, bigint, uuid, interval),
    faultline.commit(uuid, bigint, uuid, jsonb, interval),
    faultline.commit_many(uuid[], bigint[], uuid[], jsonb[]),
    faultline.fail(uuid, bigint, uuid, text, interval, text),
    faultline.release(uuid, bigint, uuid),
    faultline.record_rejection(uuid, bigint, text, text),
    faultline.reconcile(integer, text[], uuid[], text[]),
    faultline.register_worker(text, text, integer, text[], boolean),
    faultline.drain_worker(text),
    faultline.deregister_worker(text),
    faultline.vanished_workers(),
    faultline.bury_workers(text[])
    TO faultline_worker;

-- Retention is the leading reconciler's, which runs in a worker, and an operator's by hand.
GRANT EXECUTE ON FUNCTION
    faultline.purge_jobs(interval, interval, uuid, integer, boolean),
    faultline.purge_ledger(interval, uuid, integer, boolean)
    TO faultline_worker, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.queues(integer, integer),
    faultline.count_queued(text, timestamptz, timestamptz, integer),
    faultline.estimated_jobs(text, text, bigint),
    faultline.epoch_status()
    TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.cancel(uuid, text),
    faultline.retry(uuid),
    faultline.reconcile(integer, text[], uuid[], text[]),
    faultline.pause_queue(text, text),
    faultline.resume_queue(text),
    faultline.bump_epoch(text),
    faultline.create_api_key(text, text, bytea, text[]),
    faultline.revoke_api_key(bigint)
    TO faultline_operator;

-- The HTTP API finds a key by its prefix. The hashes are for nobody else's eyes.
REVOKE SELECT ON faultline.api_keys FROM faultline_worker, faultline_inspector;
GRANT EXECUTE ON FUNCTION faultline.touch_api_key(bigint) TO faultline_producer, faultline_operator;
