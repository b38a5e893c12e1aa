-- Limits on how many jobs run at once, and on how many start in a period. See schema.sql, limits.sql and places.sql.
CREATE DOMAIN faultline.limit_name AS text COLLATE "C"
    CONSTRAINT limit_has_a_kind_and_a_name CHECK (VALUE ~ '^(queue|task|key):[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$');
ALTER TABLE faultline.jobs
    ADD COLUMN limited boolean NOT NULL DEFAULT false;
CREATE TABLE faultline.limits (
    name         faultline.limit_name PRIMARY KEY,
    max_running  integer,
    rate_jobs    integer,
    rate_seconds double precision,
    burst        integer,
    declared     jsonb,
    changed_by   text        NOT NULL,
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT max_running_is_0_to_1000000 CHECK (max_running BETWEEN 0 AND 1000000),
    CONSTRAINT rate_is_complete CHECK (
        num_nulls(rate_jobs, rate_seconds, burst) IN (0, 3)
        AND rate_jobs BETWEEN 1 AND 1000000 AND burst BETWEEN 1 AND 1000000 AND rate_seconds BETWEEN 0.001 AND 31622400),
    CONSTRAINT it_limits_something CHECK (num_nonnulls(max_running, rate_jobs) > 0),
    CONSTRAINT changed_by_is_known CHECK (changed_by IN ('code', 'operator'))
);
CREATE TABLE faultline.limit_arguments (
    task       faultline.task_name  NOT NULL,
    limit_name faultline.limit_name NOT NULL,
    argument   text                 NOT NULL,
    fallback   text,
    PRIMARY KEY (task, limit_name),
    CONSTRAINT texts_are_within_limits CHECK (octet_length(argument) <= 800 AND octet_length(fallback) <= 800)
);
CREATE TABLE faultline.limit_states (
    limit_key     text        COLLATE "C" PRIMARY KEY,
    next_start_at timestamptz NOT NULL DEFAULT '-infinity',
    is_awaited    boolean     NOT NULL DEFAULT false
);
CREATE INDEX limit_states_awaited ON faultline.limit_states (next_start_at) WHERE is_awaited;
CREATE TABLE faultline.places (
    limit_key text        COLLATE "C" NOT NULL,
    job_id    uuid        NOT NULL,
    taken_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (limit_key, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX places_job ON faultline.places (job_id);
CREATE TABLE faultline.waiting_jobs (
    job_id    uuid        PRIMARY KEY,
    limit_key text        COLLATE "C" NOT NULL,
    queue     text        NOT NULL,
    priority  smallint    NOT NULL,
    due_at    timestamptz NOT NULL,
    resume_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX waiting_jobs_next ON faultline.waiting_jobs (limit_key, priority, due_at, job_id);
CREATE INDEX waiting_jobs_resuming ON faultline.waiting_jobs (resume_at) WHERE resume_at IS NOT NULL;
