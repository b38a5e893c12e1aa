-- Schedules. See schema.sql and schedules.sql.
CREATE DOMAIN faultline.schedule_name AS text CONSTRAINT schedule_is_a_name CHECK (VALUE ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$');
CREATE TABLE faultline.schedules (
    name            faultline.schedule_name PRIMARY KEY,
    cron            text,
    every_seconds   integer,
    anchor          timestamptz NOT NULL DEFAULT '1970-01-01 00:00+00',
    time_zone       text        NOT NULL DEFAULT 'UTC',
    task            faultline.task_name NOT NULL,
    payload         faultline.payload NOT NULL DEFAULT '{}',
    queue           faultline.queue_name NOT NULL DEFAULT 'default',
    priority        smallint    NOT NULL DEFAULT 5,
    max_attempts    integer     NOT NULL DEFAULT 10,
    expires_in_seconds double precision,
    overrides       faultline.job_overrides,
    missed          text        NOT NULL DEFAULT 'once',
    missed_limit    integer     NOT NULL DEFAULT 100,
    jitter_seconds  double precision NOT NULL DEFAULT 0,
    declared_by     text        NOT NULL,
    revision        bigint      NOT NULL DEFAULT 1,
    paused_at       timestamptz,
    paused_reason   text,
    decided_until   timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_fire_at    timestamptz,
    reanchored_at   timestamptz,
    last_planned_at timestamptz,
    last_job_id     uuid,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedule_has_cron_or_every CHECK (num_nonnulls(cron, every_seconds) = 1),
    CONSTRAINT every_is_1_second_to_10_years CHECK (every_seconds BETWEEN 1 AND 316224000),
    CONSTRAINT anchor_is_a_whole_second CHECK (date_trunc('second', anchor, 'UTC') = anchor),
    CONSTRAINT schedule_priority_is_0_to_9 CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT schedule_max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT expires_in_is_up_to_100_years CHECK (expires_in_seconds > 0 AND expires_in_seconds <= 3162240000),
    CONSTRAINT missed_is_skip_once_or_all CHECK (missed IN ('skip', 'once', 'all')),
    CONSTRAINT missed_limit_is_1_to_1000 CHECK (missed_limit BETWEEN 1 AND 1000),
    CONSTRAINT jitter_is_up_to_7_days CHECK (jitter_seconds BETWEEN 0 AND 604800),
    CONSTRAINT schedule_is_declared_by_code_or_operator CHECK (declared_by IN ('code', 'operator')),
    CONSTRAINT schedule_texts_are_within_limits CHECK (
        octet_length(cron) <= 1000 AND octet_length(time_zone) <= 200 AND octet_length(paused_reason) <= 4000
        AND octet_length(last_error) <= 4000)
);
CREATE INDEX schedules_due ON faultline.schedules (next_fire_at) WHERE paused_at IS NULL;

CREATE TABLE faultline.schedule_firings (
    schedule   text        NOT NULL,
    planned_at timestamptz NOT NULL,
    outcome    text        NOT NULL,
    job_id     uuid,
    skipped    integer     NOT NULL DEFAULT 0,
    fired_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule, planned_at),
    CONSTRAINT firing_outcome_is_known CHECK (outcome IN ('fired', 'skipped', 'manual')),
    CONSTRAINT a_firing_has_a_job CHECK ((outcome = 'skipped') = (job_id IS NULL))
);

ALTER TABLE faultline.jobs ADD COLUMN scheduled_for timestamptz;
ALTER TABLE faultline.workers ADD COLUMN schedules text[] NOT NULL DEFAULT '{}';
-- They return one column more; protocol.sql and workers.sql have the new ones.
DROP FUNCTION IF EXISTS faultline.leases_of(text);
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb, text[], bigint);
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb, text[], bigint, integer);
