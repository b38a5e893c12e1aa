-- Transactions of handlers: what PostgreSQL checks when they commit.
-- Transactions of jobs that have not been finished: a row queues the check of its transaction's COMMIT and is removed at once,
-- so that none is ever seen. Not logged, and empty after a crash, when there are no such transactions. See handler_transactions.sql.
CREATE UNLOGGED TABLE faultline.open_transactions (
    job_id        uuid    NOT NULL,
    fencing_token bigint  NOT NULL,
    lease_id      uuid    NOT NULL,
    completes     boolean NOT NULL -- the job, and not only a step of it
) WITH (vacuum_truncate = off); -- its few pages are written again and again

-- Jobs: limits on what may be stored.

DROP FUNCTION IF EXISTS faultline.check_retention(integer, interval[]); -- removed_before() has taken its place

-- The bytes that this value takes as text: exact as long as the text is safe to build, else a bound above the limit below.
-- Small values can have huge texts: 1e131000 is stored in 8 bytes, and written with 131,001 digits. A number takes 12 bytes
-- or more inside of a value, and its text 147,460 at most (131,072 digits, a point, 16,383 more), so few bytes are enough to
-- say that the text is safe to build. Where they are not, the numbers are measured without writing them out.
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

-- Its text is measured, because that is what clients are sent and what a dump writes. Up to 640 bytes no value can pass.
ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_at_most_8_mib;
ALTER DOMAIN faultline.payload ADD CONSTRAINT payload_is_at_most_8_mib CHECK (
    CASE WHEN pg_column_size('{}'::jsonb || VALUE) <= 640 THEN true
         ELSE faultline.json_text_bound(VALUE) <= 8388608 END) NOT VALID;

-- What clients can store has a limit in every column. One constraint for each table: PostgreSQL prepares each of them anew for
-- every statement. A character takes 4 bytes at most. NOT VALID: rows from before these limits stay as they are, and
-- `faultline verify` finds them.
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

-- Jobs: how they wait.
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
-- It takes more than it did; protocol.sql has the new one.
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb);

-- Epochs: the identity of the database.

ALTER TABLE faultline.epochs ADD COLUMN database_oid oid;
-- Where it is at work now, as far as anyone can tell: what was copied before this upgrade is not noticed by its oid.
UPDATE faultline.epochs SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())
WHERE epoch = (SELECT max(epoch) FROM faultline.epochs);
DROP FUNCTION IF EXISTS faultline.server_identity(), faultline.epoch_status(); -- their answers have another column

-- Workers: the registry.
ALTER TABLE faultline.workers
    ADD COLUMN blocked_since timestamptz,
    ADD COLUMN blocked_job uuid,
    ADD COLUMN blocked_frame text,
    ADD COLUMN blocked_stack text,
    ADD CONSTRAINT blocked_texts_are_within_limits CHECK (
        octet_length(blocked_frame) <= 4000 AND octet_length(blocked_stack) <= 40000);

ALTER TABLE faultline.workers ALTER COLUMN lock_key SET GENERATED BY DEFAULT; -- a worker may come back under the key that it holds
DROP FUNCTION IF EXISTS faultline.register_worker(text, text, integer, text[], boolean); -- it has one argument more

-- Operators: the audit log.

-- What operators did, and which keys were refused: added to, never changed, removed by retention alone. See audit.sql.
CREATE TABLE faultline.audit_log (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor_kind text        NOT NULL, -- key, command line, role, …
    actor      text        NOT NULL, -- whom the caller acts for, by its own word
    role       text        NOT NULL, -- the account of the session, by PostgreSQL's
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
