-- Rules about values that never change move from the table to domains, which check them once.
CREATE DOMAIN faultline.task_name AS text CONSTRAINT task_is_a_name CHECK (VALUE ~ '^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$');
CREATE DOMAIN faultline.queue_name AS text CONSTRAINT queue_is_a_name CHECK (VALUE ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$');
CREATE DOMAIN faultline.idempotency_key AS text
    CONSTRAINT idempotency_key_is_1_to_255_characters CHECK (length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN faultline.payload AS jsonb
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(VALUE) = 'object')
    CONSTRAINT payload_is_at_most_8_mib CHECK (pg_column_size(VALUE) <= 8388608);

ALTER TABLE faultline.jobs
    DROP CONSTRAINT task_is_a_name, DROP CONSTRAINT queue_is_a_name, DROP CONSTRAINT payload_is_an_object,
    DROP CONSTRAINT payload_is_at_most_8_mib, DROP CONSTRAINT idempotency_key_is_1_to_255_characters,
    ALTER COLUMN task TYPE faultline.task_name, ALTER COLUMN queue TYPE faultline.queue_name,
    ALTER COLUMN payload TYPE faultline.payload, ALTER COLUMN idempotency_key TYPE faultline.idempotency_key;

ALTER TABLE faultline.jobs SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX jobs_failed ON faultline.jobs (queue, finished_at) WHERE state = 'failed';
CREATE STATISTICS faultline.jobs_queue_state (mcv) ON queue, state FROM faultline.jobs;

-- A function of the moment, which PostgreSQL can inline: a batch needs thousands of ids.
CREATE FUNCTION faultline.uuid7(moment timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        substring(int8send(floor(extract(epoch FROM moment) * 1000)::bigint) FROM 3)                   -- 48 bits: milliseconds
        || int2send((28672 | (extract(microseconds FROM moment)::integer % 1000) * 4096 / 1000)::int2) -- version 7, the rest
        || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid                                -- and 64 random bits
$$;
CREATE OR REPLACE FUNCTION faultline.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT faultline.uuid7(t.moment) FROM (SELECT clock_timestamp() AS moment) AS t $$;

-- Its arguments and columns have changed; protocol.sql has the new one.
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval);
