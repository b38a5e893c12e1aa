-- The tables of Faultline. A database gets them by migrations/; a test proves that both lead to the same schema.
-- protocol.sql has the functions that change these rows, guards.sql refuses illegal changes.

CREATE SCHEMA faultline;

-- Time-ordered ids, unique across databases, so that a job's id can serve as an idempotency key outside.
-- Layout of RFC 9562 version 7; PostgreSQL has its own only from 18 on.
CREATE FUNCTION faultline.uuid7(moment timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        substring(int8send(floor(extract(epoch FROM moment) * 1000)::bigint) FROM 3)                   -- 48 bits: milliseconds
        || int2send((28672 | (extract(microseconds FROM moment)::integer % 1000) * 4096 / 1000)::int2) -- version 7, the rest
        || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid                                -- and 64 random bits
$$;
CREATE FUNCTION faultline.uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT faultline.uuid7(t.moment) FROM (SELECT clock_timestamp() AS moment) AS t $$;

-- The length of this value as text in bytes: exact if the text is safe to build, else an upper bound above the limit below.
-- Small values can have huge texts: 1e131000 is stored in 8 bytes and has 131,001 digits. A number takes at least 12 bytes in a
-- value and at most 147,460 as text (131,072 digits, a point, 16,383 more), so the text of a value of few bytes is safe to
-- build. For larger values the numbers are measured without writing them out.
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

-- Values that never change after the enqueue are checked by domains, once. PostgreSQL checks a table's constraints at every
-- claim and every commit, and two regular expressions there were a quarter of their cost.
CREATE DOMAIN faultline.task_name AS text CONSTRAINT task_is_a_name CHECK (VALUE ~ '^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$');
CREATE DOMAIN faultline.queue_name AS text CONSTRAINT queue_is_a_name CHECK (VALUE ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$');
CREATE DOMAIN faultline.schedule_name AS text CONSTRAINT schedule_is_a_name CHECK (VALUE ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$');
CREATE DOMAIN faultline.idempotency_key AS text
    CONSTRAINT idempotency_key_is_1_to_255_characters CHECK (length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN faultline.payload AS jsonb
    CONSTRAINT payload_is_an_object CHECK (jsonb_typeof(VALUE) = 'object');
-- The text is limited, because clients receive it and dumps contain it. A value of up to 640 bytes is always within the limit.
ALTER DOMAIN faultline.payload ADD CONSTRAINT payload_is_at_most_8_mib CHECK (
    CASE WHEN pg_column_size('{}'::jsonb || VALUE) <= 640 THEN true
         ELSE faultline.json_text_bound(VALUE) <= 8388608 END) NOT VALID;
-- Settings of a job that replace those of its task, in seconds: {"timeout": 30, "lease": 60}. Numbers only: a worker calculates
-- with them. CASE, because a cast of another type would fail with an error that does not name this rule.
CREATE DOMAIN faultline.job_overrides AS jsonb CONSTRAINT overrides_are_known CHECK (
    jsonb_typeof(VALUE) = 'object' AND VALUE - 'timeout' - 'lease' = '{}'
    AND CASE jsonb_typeof(VALUE -> 'timeout') WHEN 'number' THEN
            (VALUE -> 'timeout')::numeric > 0 AND (VALUE -> 'timeout')::numeric <= 3162240000 ELSE NOT VALUE ? 'timeout' END
    AND CASE jsonb_typeof(VALUE -> 'lease') WHEN 'number' THEN
            (VALUE -> 'lease')::numeric BETWEEN 0.1 AND 604800 ELSE NOT VALUE ? 'lease' END);
-- The name of a limit: 'queue:billing', 'task:shop.charge', or 'key:customer' for jobs that have the same value of an argument.
CREATE DOMAIN faultline.limit_name AS text COLLATE "C"
    CONSTRAINT limit_has_a_kind_and_a_name CHECK (VALUE ~ '^(queue|task|key):[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$');
-- Words by which operators find jobs. None is NULL and not an empty array, so that every other job stores nothing.
CREATE DOMAIN faultline.job_tags AS text[];
ALTER DOMAIN faultline.job_tags ADD CONSTRAINT tags_are_up_to_20_words CHECK (
    cardinality(VALUE) >= 1 AND cardinality(VALUE) <= 20 AND array_ndims(VALUE) = 1
    AND cardinality(string_to_array(array_to_string(VALUE, ' '), ' ')) = cardinality(VALUE)
    AND array_to_string(VALUE, ' ') ~ '^[A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99}( [A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99})*$') NOT VALID;
CREATE DOMAIN faultline.trace_context AS text CONSTRAINT trace_context_is_at_most_1000_characters CHECK (length(VALUE) <= 1000);

-- One row per job: its current state. Every time comes from the database's clock.
CREATE TABLE faultline.jobs (
    id               uuid        PRIMARY KEY DEFAULT faultline.uuid7(),
    task             faultline.task_name NOT NULL,
    queue            faultline.queue_name NOT NULL DEFAULT 'default',
    priority         smallint    NOT NULL DEFAULT 5,
    max_attempts     integer     NOT NULL DEFAULT 10,
    payload          faultline.payload NOT NULL DEFAULT '{}',
    idempotency_key  faultline.idempotency_key,
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
    trace_context    faultline.trace_context, -- of the enqueuer: traceparent, and after a line break tracestate
    awaited          boolean     NOT NULL DEFAULT false, -- its end sends a notification (results.sql)
    expires_at       timestamptz, -- a job that has not started by then fails with the reason expired
    overrides        faultline.job_overrides,
    limited          boolean     NOT NULL DEFAULT false, -- limits have applied to it: the end of its lease frees its places
    scheduled_for    timestamptz, -- of a job that a schedule enqueued: the planned time
    tags             faultline.job_tags,

    CONSTRAINT priority_is_0_to_9 CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
    CONSTRAINT next_run_at_is_a_date CHECK (next_run_at BETWEEN '0001-01-01' AND '9999-01-01'),
    CONSTRAINT state_is_known CHECK (state IN ('queued', 'running', 'succeeded', 'failed')),
    CONSTRAINT failed_has_a_reason CHECK ((state = 'failed') = (failed_reason IS NOT NULL)),
    CONSTRAINT running_has_a_lease CHECK (
        state <> 'running'
        OR (lease_id IS NOT NULL AND lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL))
) WITH (
    fillfactor = 50, -- a claim and a commit write the row anew, and find room on the same page
    -- The default waits until a fifth of the table is dead, which takes too long beside years of finished jobs.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.02
);

-- For claims, in the order of claiming. Jobs for later come after the due ones and cost nothing.
CREATE INDEX jobs_due ON faultline.jobs (queue, priority, next_run_at, id) WHERE state = 'queued';
-- For the reconciler: the running jobs. It does not contain lease_expires_at: a renewal would then write to every index.
CREATE INDEX jobs_leased ON faultline.jobs (created_at, id) WHERE state = 'running';
CREATE UNIQUE INDEX jobs_idempotency_key ON faultline.jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
-- For the reconciler: the jobs that expire first. Jobs without a limit are not in it.
CREATE INDEX jobs_expiring ON faultline.jobs (expires_at) WHERE state = 'queued' AND expires_at IS NOT NULL;
-- For operators: failed jobs by queue. No commit writes to it.
CREATE INDEX jobs_failed ON faultline.jobs (queue, finished_at) WHERE state = 'failed';
-- For estimated_jobs in counts.sql. Only ANALYZE maintains it.
CREATE STATISTICS faultline.jobs_queue_state (mcv) ON queue, state FROM faultline.jobs;

-- Queued jobs that a worker deferred because it does not know their task, for the workers that do. Only defer_many inserts
-- rows; a row whose job was claimed since has no effect.
CREATE TABLE faultline.deferred_jobs (
    job_id      uuid        PRIMARY KEY,
    task        text        NOT NULL,
    queue       text        NOT NULL,
    due_at      timestamptz NOT NULL, -- its next_run_at before it was deferred
    worker      text        NOT NULL, -- the last worker that did not know the task
    deferred_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX deferred_jobs_task ON faultline.deferred_jobs (task, queue, due_at, job_id);

-- How many jobs may run at once (max_running; 0: none starts), and how many may start in a period: rate_jobs in rate_seconds, of
-- them at most `burst` at once. See limits.sql.
CREATE TABLE faultline.limits (
    name         faultline.limit_name PRIMARY KEY,
    max_running  integer,
    rate_jobs    integer,
    rate_seconds double precision,
    burst        integer,
    declared     jsonb, -- the same values as the application's code declares them
    changed_by   text        NOT NULL,
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT max_running_is_0_to_1000000 CHECK (max_running BETWEEN 0 AND 1000000),
    CONSTRAINT rate_is_complete CHECK (
        num_nulls(rate_jobs, rate_seconds, burst) IN (0, 3)
        AND rate_jobs BETWEEN 1 AND 1000000 AND burst BETWEEN 1 AND 1000000 AND rate_seconds BETWEEN 0.001 AND 31622400),
    CONSTRAINT it_limits_something CHECK (num_nonnulls(max_running, rate_jobs) > 0),
    CONSTRAINT changed_by_is_known CHECK (changed_by IN ('code', 'operator'))
);

-- The tasks under a limit of the kind 'key', and the argument whose value is the key. A job without the argument has the fallback
-- as its key, and if that is NULL, the limit does not apply to it.
CREATE TABLE faultline.limit_arguments (
    task       faultline.task_name  NOT NULL,
    limit_name faultline.limit_name NOT NULL,
    argument   text                 NOT NULL,
    fallback   text,
    changed_by text                 NOT NULL DEFAULT 'code',
    declared   jsonb, -- argument and fallback as the application's code declares them
    PRIMARY KEY (task, limit_name),
    CONSTRAINT texts_are_within_limits CHECK (octet_length(argument) <= 800 AND octet_length(fallback) <= 800),
    CONSTRAINT argument_is_of_code_or_operator CHECK (changed_by IN ('code', 'operator'))
);

-- One row per limit key in use: the name of a limit, and for the kind 'key' also the value: 'key:customer=42'. A claim locks the
-- row before it decides which jobs of that key start. See places.sql.
CREATE TABLE faultline.limit_states (
    limit_key     text        COLLATE "C" PRIMARY KEY,
    next_start_at timestamptz NOT NULL DEFAULT '-infinity', -- under a rate: from when on the next job may start
    is_awaited    boolean     NOT NULL DEFAULT false        -- jobs wait until then, and not for a place
);
CREATE INDEX limit_states_awaited ON faultline.limit_states (next_start_at) WHERE is_awaited;

-- The running jobs under limits of concurrency: one row per job and limit key. A claim inserts them, and the end of the lease
-- deletes them in its own transaction, so that counting rows is exact.
CREATE TABLE faultline.places (
    limit_key text        COLLATE "C" NOT NULL,
    job_id    uuid        NOT NULL,
    taken_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (limit_key, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX places_job ON faultline.places (job_id);

-- Due jobs that wait because a limit is reached. Their next_run_at in jobs is parked_for() later than due_at, so that claims do not
-- read them again.
CREATE TABLE faultline.waiting_jobs (
    job_id    uuid        PRIMARY KEY,
    limit_key text        COLLATE "C" NOT NULL, -- the limit that was reached
    queue     text        NOT NULL,
    priority  smallint    NOT NULL,
    due_at    timestamptz NOT NULL, -- its next_run_at before
    resume_at timestamptz -- it waits only because another claim was deciding about the same key: look again then
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX waiting_jobs_next ON faultline.waiting_jobs (limit_key, queue, priority, due_at, job_id);
CREATE INDEX waiting_jobs_resuming ON faultline.waiting_jobs (resume_at) WHERE resume_at IS NOT NULL;

-- Unique jobs (unique.sql): one row per job that was enqueued with `unique`, removed with its job.
CREATE TABLE faultline.unique_jobs (
    job_id      uuid        PRIMARY KEY,
    unique_key  text        NOT NULL,           -- the task and the values of arguments, as unique_key() writes them
    while_      text        NOT NULL,           -- the job counts while it waits for its first claim, or until it ends
    held_until  timestamptz,                    -- it counts at least until then
    replaced    integer     NOT NULL DEFAULT 0, -- later enqueues that replaced its payload
    rescheduled integer     NOT NULL DEFAULT 0, -- later enqueues that moved its time
    changed_at  timestamptz,                    -- the last of these
    CONSTRAINT while_is_known CHECK (while_ IN ('queued', 'unfinished')),
    CONSTRAINT unique_key_is_at_most_1400_bytes CHECK (octet_length(unique_key) <= 1400)
);

-- Which job holds a unique key. The primary key decides between producers, and the row is their lock. The holder is judged by
-- its job: a row whose job no longer counts is taken over by the next enqueue, or purged.
CREATE TABLE faultline.unique_keys (
    unique_key text PRIMARY KEY,
    job_id     uuid NOT NULL
);

-- One immutable row per job that took effect. Inserting it is the commit.
-- Its primary key implies that a pair of job_id and fencing_token is unique too.
CREATE TABLE faultline.ledger (
    job_id        uuid        PRIMARY KEY,
    fencing_token bigint      NOT NULL,
    lease_id      uuid        NOT NULL,
    worker        text,
    result        jsonb,
    committed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Open transactions of handlers: inserting a row queues the check at COMMIT, and the row is deleted at once, so that the table
-- stays empty. Unlogged, because no transaction survives a crash. See handler_transactions.sql.
CREATE UNLOGGED TABLE faultline.open_transactions (
    job_id        uuid    NOT NULL,
    fencing_token bigint  NOT NULL,
    lease_id      uuid    NOT NULL,
    completes     boolean NOT NULL, -- false: only a step of the job
    batch_id      uuid              -- of a batch handler's transaction; the job is then the first one of its batch
) WITH (vacuum_truncate = off); -- its few pages are reused all the time

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

-- Attempts that did not end in the ledger, and what operators did to a job. An attempt that commits writes no row here: the
-- job's row and the ledger have what a timeline needs of it.
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
    former_payload jsonb, -- of the outcomes 'edited' and 'replaced': the payload before
    times         integer     NOT NULL DEFAULT 1 -- of the outcome 'snoozed': how many snoozes the row counts (snooze.sql)
);
-- NOT VALID spares an upgrade from reading the table: each older row has an outcome of the shorter list before.
ALTER TABLE faultline.attempts_log ADD CONSTRAINT outcome_is_known CHECK (
    outcome IN ('expired', 'worker_lost', 'failed', 'released', 'snoozed', 'cancelled', 'retried', 'edited', 'replaced')) NOT VALID;
CREATE INDEX attempts_log_job ON faultline.attempts_log (job_id);

-- How far a job is, as its handler last reported. One row per job that reports, under the token of the attempt that did: a row with
-- another token than its job's is of a former attempt. It is deleted with its job. See progress.sql.
CREATE TABLE faultline.job_progress (
    job_id        uuid        PRIMARY KEY,
    fencing_token bigint      NOT NULL,
    fraction      real        NOT NULL,
    message       text,
    reported_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT fraction_is_0_to_1 CHECK (fraction BETWEEN 0 AND 1), -- NaN is above 1
    CONSTRAINT message_is_at_most_500_characters CHECK (length(message) <= 500)
) WITH (fillfactor = 50); -- a report writes the row anew, and finds room on the same page

-- One row per start of a worker process. Its two sessions hold the shared advisory lock (1717663084, lock_key): when neither
-- does, the process is dead.
CREATE TABLE faultline.workers (
    id                text        PRIMARY KEY,
    lock_key          integer     GENERATED BY DEFAULT AS IDENTITY (CYCLE) UNIQUE,
    host              text        NOT NULL,
    pid               integer     NOT NULL,
    queues            text[]      NOT NULL,
    holds_locks       boolean     NOT NULL,
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    draining          boolean     NOT NULL DEFAULT false,
    lost_at           timestamptz,
    drain_requested_at timestamptz, -- an operator asked it to release its jobs and stop
    blocked_since     timestamptz, -- its event loop is blocked since then; NULL: it runs
    blocked_job       uuid,        -- the job whose handler blocks it, if known
    blocked_frame     text,        -- file, line and function that block it
    blocked_stack     text,
    schedules         text[]      NOT NULL DEFAULT '{}', -- that its code declares
    CONSTRAINT blocked_texts_are_within_limits CHECK (
        octet_length(blocked_frame) <= 4000 AND octet_length(blocked_stack) <= 40000),
    CONSTRAINT worker_id_is_1_to_200_characters CHECK (length(id) BETWEEN 1 AND 200)
);

-- Workers with free slots, by queue: a job that becomes due notifies one of them, from a random `draw` on. Unlogged, because a
-- worker announces itself again. See notifications.sql.
CREATE UNLOGGED TABLE faultline.idle_workers (
    worker text             NOT NULL,
    queue  text             COLLATE "C" NOT NULL, -- '*': every queue
    draw   double precision NOT NULL DEFAULT random(),
    PRIMARY KEY (worker, queue),
    CONSTRAINT idle_texts_are_within_limits CHECK (octet_length(worker) <= 800 AND octet_length(queue) <= 252)
);
CREATE INDEX idle_workers_draw ON faultline.idle_workers (queue, draw);

-- Jobs of open transactions that will notify at COMMIT. As in open_transactions, each row is deleted at once.
CREATE UNLOGGED TABLE faultline.pending_wakes (
    queue text   NOT NULL,
    jobs  bigint NOT NULL
) WITH (vacuum_truncate = off);

-- One row per epoch, the newest being the current one, with the server on which it began. See epoch.sql.
CREATE TABLE faultline.epochs (
    epoch             bigint      PRIMARY KEY,
    system_identifier bigint,
    timeline          integer,
    restored_from     timestamptz,
    server_started_at timestamptz NOT NULL DEFAULT pg_postmaster_start_time(), -- the start of the server at the last examination
    cause             text        NOT NULL,
    began_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    database_oid      oid,
    CONSTRAINT epoch_fits_in_31_bits CHECK (epoch BETWEEN 0 AND 2147483647)
);

-- Queues that no claim reads until an operator resumes them.
CREATE TABLE faultline.paused_queues (
    queue     faultline.queue_name PRIMARY KEY,
    reason    text,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Schedules: each row enqueues its job at planned times, by a cron expression in a time zone, or every so many seconds. Cron
-- expressions are computed in Python alone; schedules.sql compares, enqueues and records. NULL as next_fire_at: a scheduler has
-- yet to compute it, from decided_until.
CREATE TABLE faultline.schedules (
    name            faultline.schedule_name PRIMARY KEY,
    cron            text,
    every_seconds   integer,
    anchor          timestamptz NOT NULL DEFAULT '1970-01-01 00:00+00', -- planned times are anchor + n * every_seconds
    time_zone       text        NOT NULL DEFAULT 'UTC',
    task            faultline.task_name NOT NULL,
    payload         faultline.payload NOT NULL DEFAULT '{}',
    queue           faultline.queue_name NOT NULL DEFAULT 'default',
    priority        smallint    NOT NULL DEFAULT 5,
    max_attempts    integer     NOT NULL DEFAULT 10,
    expires_in_seconds double precision,
    overrides       faultline.job_overrides,
    missed          text        NOT NULL DEFAULT 'once', -- which of several due times fire: skip, once, all
    missed_limit    integer     NOT NULL DEFAULT 100,    -- how many times fire at once with 'all'
    jitter_seconds  double precision NOT NULL DEFAULT 0,
    declared_by     text        NOT NULL, -- code: each worker that starts; operator: add_schedule
    revision        bigint      NOT NULL DEFAULT 1, -- every change raises it
    paused_at       timestamptz,
    paused_reason   text,
    decided_until   timestamptz NOT NULL DEFAULT clock_timestamp(), -- the next time to fire is the first one after it
    next_fire_at    timestamptz,
    reanchored_at   timestamptz, -- replaces the anchor after the clock was set back
    last_planned_at timestamptz, -- the newest time that fired or was skipped
    last_job_id     uuid,
    last_error      text,        -- why the next time cannot be computed
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    tags            faultline.job_tags, -- of each job
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

-- One immutable row per planned time that was decided. Its key keeps a time from firing twice, also after its job was purged and
-- after the schedule was removed and added again. Of many skipped times only the newest has a row, which counts them.
CREATE TABLE faultline.schedule_firings (
    schedule   text        NOT NULL,
    planned_at timestamptz NOT NULL,
    outcome    text        NOT NULL, -- fired; skipped; manual: an operator ran it at this moment
    job_id     uuid,
    skipped    integer     NOT NULL DEFAULT 0, -- of a skipped one: how many times did not fire, up to this one
    fired_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schedule, planned_at),
    CONSTRAINT firing_outcome_is_known CHECK (outcome IN ('fired', 'skipped', 'manual')),
    CONSTRAINT a_firing_has_a_job CHECK ((outcome = 'skipped') = (job_id IS NULL))
);

-- Keys of the HTTP API. A key is shown once, when it is created, and is not stored.
CREATE TABLE faultline.api_keys (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        NOT NULL,
    prefix       text        NOT NULL UNIQUE, -- the public part of the key, by which it is found
    key_hash     bytea       NOT NULL,        -- SHA-256 is enough: a key is random, and too long to guess
    scopes       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT key_name_is_1_to_100_characters CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT key_hash_is_sha_256 CHECK (length(key_hash) = 32),
    CONSTRAINT key_scopes_are_known CHECK (scopes <@ ARRAY['enqueue', 'read', 'operate'] AND cardinality(scopes) > 0)
);

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

CREATE TABLE faultline.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Limits on every text that clients can store. One constraint per table, because PostgreSQL prepares each constraint anew for
-- every statement. A character takes at most 4 bytes. NOT VALID: older rows stay as they are, and `faultline verify` finds them.
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
