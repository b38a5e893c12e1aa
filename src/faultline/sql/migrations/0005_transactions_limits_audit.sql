-- Open transactions of handlers: inserting a row queues the check at COMMIT, and the row is deleted at once, so that the table
-- stays empty. Unlogged, because no transaction survives a crash. See handler_transactions.sql.
CREATE UNLOGGED TABLE faultline.open_transactions (
    job_id        uuid    NOT NULL,
    fencing_token bigint  NOT NULL,
    lease_id      uuid    NOT NULL,
    completes     boolean NOT NULL -- false: only a step of the job
) WITH (vacuum_truncate = off); -- its few pages are reused all the time

-- Limits on what clients can store.

DROP FUNCTION IF EXISTS faultline.check_retention(integer, interval[]); -- replaced by removed_before()

-- See schema.sql for the reasons.
CREATE FUNCTION faultline.json_text_bound(value jsonb) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size  bigint := pg_column_size('{}'::jsonb || value); -- what || returns is never compressed; a column's value may be
    bound bigint := size * 12300;
BEGIN
    IF size > 8388608 THEN
        RETURN bound;
    END IF;
    IF bound > 67108864 THEN
        SELECT size * 6 + coalesce(sum(scale(n.number) + CASE
                   WHEN n.number < 1e20 THEN 24 WHEN n.number < 1e80 THEN 84 WHEN n.number < 1e320 THEN 324
                   WHEN n.number < 1e1280 THEN 1284 WHEN n.number < 1e5120 THEN 5124 WHEN n.number < 1e20480 THEN 20484
                   WHEN n.number < 1e81920 THEN 81924 ELSE 131076 END), 0)
        INTO bound
        FROM jsonb_array_elements(jsonb_path_query_array(value, 'strict $.** ? (@.type() == "number")')) AS e (item)
        CROSS JOIN LATERAL (SELECT abs(e.item::numeric) AS number) AS n;
    END IF;
    RETURN CASE WHEN bound <= 134217728 THEN octet_length(value::text) ELSE bound END;
END $$;

ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_at_most_8_mib;
ALTER DOMAIN faultline.payload ADD CONSTRAINT payload_is_at_most_8_mib CHECK (
    CASE WHEN pg_column_size('{}'::jsonb || VALUE) <= 640 THEN true
         ELSE faultline.json_text_bound(VALUE) <= 8388608 END) NOT VALID;

-- NOT VALID: older rows stay as they are, and `faultline verify` finds them.
ALTER TABLE faultline.jobs ADD CONSTRAINT texts_are_within_limits CHECK (
    octet_length(lease_owner) <= 800 AND octet_length(failed_reason) <= 400
    AND octet_length(last_error) <= 42000) NOT VALID;
ALTER TABLE faultline.ledger ADD CONSTRAINT result_is_at_most_8_mib CHECK ( -- its worker is the job's lease_owner
    CASE WHEN pg_column_size('{}'::jsonb || result) <= 640 THEN true
         ELSE faultline.json_text_bound(result) <= 8388608 END) NOT VALID;
ALTER TABLE faultline.rejections ADD CONSTRAINT texts_are_within_limits CHECK (
    octet_length(worker) <= 800 AND octet_length(reason) <= 400) NOT VALID;
ALTER TABLE faultline.attempts_log ADD CONSTRAINT texts_are_within_limits CHECK (
    octet_length(worker) <= 800 AND octet_length(error) <= 42000) NOT VALID;
ALTER TABLE faultline.workers ADD CONSTRAINT texts_are_within_limits CHECK (
    octet_length(host) <= 1020 AND octet_length(array_to_string(queues, ' ')) <= 1048576) NOT VALID;
ALTER TABLE faultline.epochs ADD CONSTRAINT texts_are_within_limits CHECK (octet_length(cause) <= 4000) NOT VALID;
ALTER TABLE faultline.paused_queues ADD CONSTRAINT texts_are_within_limits CHECK (octet_length(reason) <= 4000) NOT VALID;
ALTER TABLE faultline.api_keys ADD CONSTRAINT texts_are_within_limits CHECK (
    octet_length(prefix) <= 32 AND cardinality(scopes) <= 3) NOT VALID;

-- Deferred jobs, and the new default of max_attempts.
ALTER TABLE faultline.jobs ALTER COLUMN max_attempts SET DEFAULT 10;
CREATE TABLE faultline.deferred_jobs (
    job_id      uuid        PRIMARY KEY,
    task        text        NOT NULL,
    queue       text        NOT NULL,
    due_at      timestamptz NOT NULL,
    worker      text        NOT NULL,
    deferred_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX deferred_jobs_task ON faultline.deferred_jobs (task, queue, due_at, job_id);
-- Its arguments have changed; protocol.sql has the new one.
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb);

-- The identity of the database in its epochs.

ALTER TABLE faultline.epochs ADD COLUMN database_oid oid;
-- This database is taken for the original: a copy made before this upgrade is not recognised by its oid.
UPDATE faultline.epochs SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())
WHERE epoch = (SELECT max(epoch) FROM faultline.epochs);
DROP FUNCTION IF EXISTS faultline.server_identity(), faultline.epoch_status(); -- they return one column more

-- Blocked event loops in the registry of workers.
ALTER TABLE faultline.workers
    ADD COLUMN blocked_since timestamptz,
    ADD COLUMN blocked_job uuid,
    ADD COLUMN blocked_frame text,
    ADD COLUMN blocked_stack text,
    ADD CONSTRAINT blocked_texts_are_within_limits CHECK (
        octet_length(blocked_frame) <= 4000 AND octet_length(blocked_stack) <= 40000);

ALTER TABLE faultline.workers ALTER COLUMN lock_key SET GENERATED BY DEFAULT; -- a worker may register again with the key that it holds
DROP FUNCTION IF EXISTS faultline.register_worker(text, text, integer, text[], boolean); -- it takes one argument more

-- Operators' actions and refused keys: rows are added, never changed, and purged by retention. See audit.sql.
CREATE TABLE faultline.audit_log (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor_kind text        NOT NULL, -- key, command line, role, …
    actor      text        NOT NULL, -- for whom the caller acts, as it says itself
    role       text        NOT NULL, -- the account of the session, verified by PostgreSQL
    address    text,
    action     text        NOT NULL,
    object     text,
    result     text        NOT NULL,
    code       text,
    detail     text,
    times      integer     NOT NULL DEFAULT 1, -- equal refusals are counted in one row
    CONSTRAINT result_is_known CHECK (result IN ('done', 'unchanged', 'refused')),
    CONSTRAINT texts_are_within_limits CHECK (
        octet_length(actor_kind) <= 200 AND octet_length(actor) <= 800 AND octet_length(role) <= 256
        AND octet_length(address) <= 400 AND octet_length(action) <= 400 AND octet_length(object) <= 1200
        AND octet_length(code) <= 400 AND octet_length(detail) <= 4000)
);
