-- Tables as of 0.1.

CREATE SCHEMA faultline;

-- Time-ordered ids, unique across databases, so that a job's id can serve as an idempotency key outside.
-- Layout of RFC 9562 version 7; PostgreSQL has its own only from 18 on.
CREATE FUNCTION faultline.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        substring(int8send(microseconds / 1000) FROM 3)                        -- 48 bits: milliseconds
        || int2send((28672 | (microseconds % 1000) * 4096 / 1000)::int2)      -- version 7, then the rest of the time
        || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid       -- variant and 62 random bits
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS microseconds) AS moment
$$;

-- One row per job: its current state. Every time comes from the database's clock.
CREATE TABLE faultline.jobs (
    id               uuid        PRIMARY KEY DEFAULT faultline.uuid7(),
    task             text        NOT NULL,
    queue            text        NOT NULL DEFAULT 'default',
    priority         smallint    NOT NULL DEFAULT 5,
    max_attempts     integer     NOT NULL DEFAULT 5,
    payload          jsonb       NOT NULL DEFAULT '{}',
    idempotency_key  text,
    state            text        NOT NULL DEFAULT 'queued',
    failed_reason    text,
    next_run_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts         integer     NOT NULL DEFAULT 0,
    crashes          integer     NOT NULL DEFAULT 0, -- attempts whose worker was lost
    fencing_token    bigint      NOT NULL DEFAULT 0,
    lease_id         uuid,
    lease_owner      text,
    lease_seconds    real,
    lease_expires_at timestamptz,
    claimed_at       timestamptz,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at      timestamptz,

    CONSTRAINT task_is_a_name CHECK (task ~ '^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$'),
    CONSTRAINT queue_is_a_name CHECK (queue ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'),
    CONSTRAINT priority_is_0_to_9 CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT payload_is_at_most_8_mib CHECK (pg_column_size(payload) <= 8388608),
    CONSTRAINT idempotency_key_is_1_to_255_characters CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    CONSTRAINT next_run_at_is_a_date CHECK (next_run_at BETWEEN '0001-01-01' AND '9999-01-01'),
    CONSTRAINT state_is_known CHECK (state IN ('queued', 'running', 'succeeded', 'failed')),
    CONSTRAINT failed_has_a_reason CHECK ((state = 'failed') = (failed_reason IS NOT NULL)),
    CONSTRAINT running_has_a_lease CHECK (
        state <> 'running'
        OR (lease_id IS NOT NULL AND lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL))
);

-- For claims, in the order of claiming. Jobs for later come after the due ones and cost nothing.
CREATE INDEX jobs_due ON faultline.jobs (queue, priority, next_run_at, id) WHERE state = 'queued';
-- For the reconciler: the leases that expire first.
CREATE INDEX jobs_leased ON faultline.jobs (lease_expires_at) WHERE state = 'running';
CREATE UNIQUE INDEX jobs_idempotency_key ON faultline.jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One immutable row per job that took effect. Inserting it is the commit.
-- The primary key implies the UNIQUE pair; the pair is a second guard, and the rule as users know it.
CREATE TABLE faultline.ledger (
    job_id        uuid        PRIMARY KEY,
    fencing_token bigint      NOT NULL,
    lease_id      uuid        NOT NULL,
    worker        text,
    result        jsonb,
    committed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (job_id, fencing_token)
);

-- Every refused stale write, and for how long two attempts ran at once.
CREATE TABLE faultline.rejections (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid        NOT NULL,
    worker        text        NOT NULL,
    stale_token   bigint      NOT NULL,
    current_token bigint,
    reason        text        NOT NULL,
    overlap       interval    NOT NULL,
    rejected_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX rejections_job ON faultline.rejections (job_id);

-- Attempts that did not end in the ledger. An attempt that commits writes no row here: the job's row and the ledger have
-- what a timeline needs of it.
CREATE TABLE faultline.attempts_log (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid        NOT NULL,
    attempt       integer     NOT NULL,
    fencing_token bigint      NOT NULL,
    worker        text,
    outcome       text        NOT NULL,
    error         text,
    claimed_at    timestamptz,
    ended_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outcome_is_known CHECK (
        outcome IN ('expired', 'worker_lost', 'failed', 'released', 'cancelled', 'retried'))
);
CREATE INDEX attempts_log_job ON faultline.attempts_log (job_id);

-- One row per start of a worker process. Its two sessions hold the shared advisory lock (1717663084, lock_key): when neither
-- does, the process is dead.
CREATE TABLE faultline.workers (
    id                text        PRIMARY KEY,
    lock_key          integer     GENERATED ALWAYS AS IDENTITY (CYCLE) UNIQUE,
    host              text        NOT NULL,
    pid               integer     NOT NULL,
    queues            text[]      NOT NULL,
    holds_locks       boolean     NOT NULL,
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    draining          boolean     NOT NULL DEFAULT false,
    lost_at           timestamptz,
    CONSTRAINT worker_id_is_1_to_200_characters CHECK (length(id) BETWEEN 1 AND 200)
);

CREATE TABLE faultline.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
