-- The trace context of the enqueuer.
CREATE DOMAIN faultline.trace_context AS text CONSTRAINT trace_context_is_at_most_1000_characters CHECK (length(VALUE) <= 1000);
ALTER TABLE faultline.jobs ADD COLUMN trace_context faultline.trace_context;

-- Queues that no claim reads until an operator resumes them.
CREATE TABLE faultline.paused_queues (
    queue     faultline.queue_name PRIMARY KEY,
    reason    text,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Keys of the HTTP API.
CREATE TABLE faultline.api_keys (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        NOT NULL,
    prefix       text        NOT NULL UNIQUE,
    key_hash     bytea       NOT NULL,
    scopes       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT key_name_is_1_to_100_characters CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT key_hash_is_sha_256 CHECK (length(key_hash) = 32),
    CONSTRAINT key_scopes_are_known CHECK (scopes <@ ARRAY['enqueue', 'read', 'operate'] AND cardinality(scopes) > 0)
);

-- Their arguments or columns have changed; enqueue.sql, protocol.sql and intervals.sql have the new ones.
DROP FUNCTION IF EXISTS faultline.enqueue(text, jsonb, text, integer, timestamptz, text, integer);
DROP FUNCTION IF EXISTS faultline.enqueue_many(text, jsonb[], text, integer, timestamptz, text[], integer);
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb);
DROP FUNCTION IF EXISTS faultline.limit_idling(interval);
