-- The protocol of Faultline: what a client in any language can do with a job, and why each step is safe.
--
--   enqueue ─▶ queued ──claim──▶ running ──commit──▶ succeeded   (only with an entry in the ledger)
--                ▲                  │
--                └─ fail · release ─┴─ fail · reconcile · cancel ──▶ failed ──retry──▶ queued
--                     · reconcile · snooze (snooze.sql)
--
-- A job is one row of faultline.jobs. A claim gives it to one worker and changes three columns:
--   fencing_token     a number that every claim raises. Its high bits are the epoch: the number of the history that this
--                     database is in. It rises when the database continues on a promoted or restored server (epoch.sql),
--                     so that no token is issued twice even if the lost server's last claims are missing here.
--   lease_id          a random id, new for each job of each claim. It always changes together with the token.
--   lease_expires_at  until when this claim may commit, by the database's clock. Heartbeats renew it.
-- The ledger has one row per job that took effect. Inserting that row is the commit; it is never changed.
--
-- Four invariants, and what keeps each:
--   1. No two claims have the same token and lease_id: claim, and the guard on updates of jobs (guards.sql).
--   2. Only the newest claim of a running job can commit, and only before its lease expires: the ledger's triggers lock the
--      job's row and call fence_violation. A refusal raises FL001, which rolls back the caller's own writes too.
--   3. A job has at most one ledger entry, and is succeeded exactly if it has one: the ledger's key and triggers, guards.sql.
--   4. Every function that ends a lease locks the job's row FOR UPDATE first, and reads it afterwards.
-- (ROLLBACK TO SAVEPOINT undoes a refusal. handler_transactions.sql then makes the COMMIT fail.)
-- All functions are correct at READ COMMITTED, use only the database's clock, and can be called from psql. Roles have no rights
-- on the tables: they call these functions, which run as their owner. Used in many places:
--   faultline.verb   a setting that names the operation in progress: 'commit', 'retry' or 'retention'. The guards refuse an
--                    UPDATE that ends or restarts a job, unless the function for it has set faultline.verb before.
--   wake(queue)      notifies an idle worker, which claims at once. If it is lost, workers claim at their next poll
--                    (notifications.sql).
-- enqueue.sql has enqueue, which inserts the row, recovery.sql has reconcile, which queues the jobs of dead workers again, and
-- operating.sql has cancel and retry. They follow the same rules.

-- ── The fence ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- Why this token and lease may not write for this job; null if they may. The caller has locked the row. Every check of a
-- lease calls this, and PostgreSQL inlines it. now() is the start of the transaction: a slow one would outlive its lease.
CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN job.id IS NULL THEN 'unknown_job'
        WHEN job.fencing_token IS DISTINCT FROM token OR job.lease_id IS DISTINCT FROM lease THEN 'token_mismatch'
        WHEN job.state = 'succeeded' THEN 'already_committed'
        WHEN job.state <> 'running' THEN 'not_running'
        WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'
    END
$$;

-- Whether this token and lease may renew or release the job. They may even after the lease has expired, until the job is
-- claimed again or reconciled: while the token is the newest one, no other worker has the job.
CREATE OR REPLACE FUNCTION faultline.is_holder(job faultline.jobs, token bigint, lease uuid) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(faultline.fence_violation(job, token, lease), 'lease_expired') = 'lease_expired'
$$;

-- ── Claim and renew ────────────────────────────────────────────────────────────────────────────────────────────────

-- Claims due jobs for a worker. Safe because a claim locks each row before it changes it and skips rows that are locked, so
-- that no two claims get the same job, and because each token is higher than all before it (invariant 1).
--   · Every lease_id is new: a hash of the job's id and of a random number that each claim draws. A random number for each job was
--     up to a quarter of a claim's cost, where PostgreSQL reads them from the operating system.
--   · The attempt is counted here and not at its end, so that a job that kills its worker runs out of attempts.
--   · A claim that finds too few jobs reconciles its queues and searches once more, so that jobs recover without a reconciler.
--   · Each priority is an index range of its own: a single range begins with the scheduled jobs of the higher priorities. Queues
--     of one priority are searched in random order, so that none starves; paused queues are skipped. The search begins at
--     `first_priority` and goes on from 9 to 0. Workers vary it, so that no priority starves (workers/priority_rotation.py).
--   · `past` is a cursor, {"queue": {"priority": [next_run_at, job_id]}} of the caller's last job. The search starts after it
--     and skips the index entries of claimed jobs, which VACUUM cannot remove while an old snapshot exists. A job that is
--     queued again may lie before it, so omit it a few times a second. A search that finds too few jobs is repeated without it.
--   · `tasks` names the tasks that the caller can run. If another worker deferred a job because it did not know the task, and
--     the task is named here, the job is due at once (recall_deferred in claiming.sql).
--   · `max_bytes` limits the text of all payloads together. The job that reaches the limit is the last, and one always fits.
--     select_claimable (claiming.sql) applies it, fails jobs that can never be claimed, and leaves out those whose limits of
--     concurrency or rate are reached (places.sql).
--   · checked_lease (intervals.sql) refuses a lease beyond 7 days. current_epoch (epoch.sql) raises FL008 in a copied database.
CREATE OR REPLACE FUNCTION faultline.claim(
    worker text, queues text[] DEFAULT '{default}', batch_size integer DEFAULT 1, lease interval DEFAULT '15 seconds',
    past jsonb DEFAULT NULL, tasks text[] DEFAULT NULL, max_bytes bigint DEFAULT 16777216, first_priority integer DEFAULT 0)
RETURNS TABLE (job_id uuid, fencing_token bigint, lease_id uuid, lease_expires_at timestamptz, task text, queue text,
               payload jsonb, attempts integer, max_attempts integer, crashes integer, priority integer,
               next_run_at timestamptz, trace_context text, overrides jsonb,
               scheduled_for timestamptz) -- in the order to run them in
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    secret          bytea   := uuid_send(gen_random_uuid()); -- of this claim
    wanted          integer := batch_size;
    claimed         integer;
    epoch           bigint  := faultline.current_epoch() << 22; -- a token is epoch * 2^22 + a counter
    lane_queues     text[]; -- a lane is a queue and a priority: 10 for each queue, or those that hold jobs (lanes_of)
    lane_priorities integer[];
    limited_queues  text[];
    limited_tasks   text[];
    moment          timestamptz;
    may_resume      boolean;
    reduced         text;
    is_last         boolean := false;
    name            text;
BEGIN
    lease := faultline.checked_lease(lease);
    IF (batch_size BETWEEN 1 AND 10000 AND queues IS NOT NULL AND max_bytes > 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot claim % jobs of % with % bytes', batch_size, queues, max_bytes USING ERRCODE = 'FL005',
            HINT = 'batch_size is 1 to 10000, queues is a list, and max_bytes is more than 0.';
    END IF;
    LOCK TABLE faultline.limits IN ROW SHARE MODE; -- change_limit (limits.sql) and this claim wait for each other
    moment := clock_timestamp();
    SELECT f.queues, f.tasks, EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.resume_at <= moment)
        OR EXISTS (SELECT FROM faultline.limit_states AS s WHERE s.is_awaited AND s.next_start_at <= moment)
    INTO limited_queues, limited_tasks, may_resume FROM faultline.limited_names() AS f;
    IF may_resume THEN -- without a limit it is null
        PERFORM faultline.resume_waiting();
    END IF;
    IF cardinality(queues) <= 4 THEN -- as all_lanes, which PostgreSQL would plan again for each claim
        FOREACH name IN ARRAY queues LOOP
            lane_queues := lane_queues || array_fill(name, ARRAY[10]);
            lane_priorities := lane_priorities || '{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}'::integer[];
        END LOOP;
    END IF;
    FOR look IN 1..10 LOOP
        IF tasks IS NOT NULL AND past IS NULL THEN
            PERFORM FROM faultline.deferred_jobs LIMIT 1;
            IF FOUND THEN
                PERFORM faultline.recall_deferred(queues, tasks, wanted);
            END IF;
        END IF;
        IF cardinality(queues) > 4 THEN
            SELECT l.lane_queues, l.lane_priorities INTO lane_queues, lane_priorities FROM faultline.lanes_of(queues) AS l;
        END IF;
        RETURN QUERY
            WITH taken AS (
                UPDATE faultline.jobs AS j
                SET state = 'running', attempts = j.attempts + 1, fencing_token = greatest(j.fencing_token, epoch) + 1,
                    lease_id = encode(substring(sha256(secret || uuid_send(j.id)) FOR 16), 'hex')::uuid,
                    lease_owner = worker, lease_seconds = extract(epoch FROM lease),
                    lease_expires_at = clock_timestamp() + lease, claimed_at = clock_timestamp(),
                    limited = (j.limited OR j.queue = ANY (limited_queues) OR j.task = ANY (limited_tasks)) IS TRUE
                WHERE j.id = ANY ((
                    SELECT CASE WHEN sum(d.bytes) > least((max_bytes + 1) / 2, 268435456) OR max(d.fencing_token & 4194303) = 4194303
                                  OR min(d.expires_at) <= statement_timestamp() OR bool_or(d.is_limited)
                                THEN faultline.select_claimable(array_agg(d.id), epoch, (max_bytes + 1) / 2) ELSE array_agg(d.id) END
                    FROM (SELECT due.id, due.fencing_token, due.bytes, due.expires_at, due.is_limited
                          FROM (SELECT l.priority, l.queue, past #>> ARRAY[l.queue, l.priority::text, '0'] AS past_time,
                                       past #>> ARRAY[l.queue, l.priority::text, '1'] AS past_id
                                FROM unnest(lane_priorities, lane_queues) AS l (priority, queue)
                                WHERE NOT EXISTS (SELECT FROM faultline.paused_queues AS z WHERE z.queue = l.queue)
                                ORDER BY (l.priority - first_priority + 10) % 10, random()) AS lane
                          CROSS JOIN LATERAL (
                              SELECT w.id, w.fencing_token, w.expires_at,
                                     w.limited OR w.queue = ANY (limited_queues) OR w.task = ANY (limited_tasks) AS is_limited,
                                     CASE WHEN pg_column_size(w.payload) <= 640 AND pg_column_compression(w.payload) IS NULL
                                          THEN octet_length(w.payload::text) ELSE faultline.json_text_bound(w.payload) END AS bytes
                              FROM faultline.jobs AS w
                              WHERE w.state = 'queued' AND w.queue = lane.queue AND w.priority = lane.priority
                                AND w.next_run_at <= statement_timestamp()
                                AND (w.next_run_at, w.id) > (coalesce(lane.past_time::timestamptz, '-infinity'),
                                                             coalesce(lane.past_id, '00000000-0000-0000-0000-000000000000')::uuid)
                              ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED) AS due
                          LIMIT wanted) AS d)::uuid[])
                RETURNING j.id, j.fencing_token, j.lease_id, j.lease_expires_at, j.task::text, j.queue::text, j.payload::jsonb,
                          j.attempts, j.max_attempts, j.crashes, j.priority::integer, j.next_run_at, j.trace_context::text, j.overrides::jsonb,
                          j.scheduled_for)
            SELECT * FROM taken AS t ORDER BY t.priority, t.next_run_at, t.id;
        GET DIAGNOSTICS claimed = ROW_COUNT;
        wanted := wanted - claimed;
        reduced := nullif(current_setting('faultline.claim_reduced', true), ''); -- by select_claimable
        IF reduced IS NOT NULL THEN
            PERFORM faultline.settle_starts();
            EXIT WHEN wanted = 0 OR (reduced = 'bytes' AND claimed > 0);
            PERFORM faultline.broadcast('@0 ' || q.name) FROM unnest(queues) AS q (name) WHERE look = 10 LIMIT 10; -- there is more
            CONTINUE WHEN reduced <> 'none';
        END IF;
        EXIT WHEN wanted = 0 OR is_last;
        PERFORM FROM faultline.reconcile(max_jobs => wanted, queues => claim.queues);
        EXIT WHEN NOT FOUND AND past IS NULL;
        past := NULL;
        is_last := true;
    END LOOP;
END $$;

-- Renews the caller's leases. Safe because it changes only rows that have the caller's token and lease. It never waits: if it
-- waited for one locked row, all other leases of the worker would expire meanwhile. A row that another session has locked is
-- reported as locked, which does not mean lost. An expired lease is renewed if no other worker has claimed the job since.
-- After request_drain (workers.sql) every heartbeat returns one more row, without a job and with the outcome drain.
CREATE OR REPLACE FUNCTION faultline.heartbeat(
    worker text, job_ids uuid[] DEFAULT '{}', fencing_tokens bigint[] DEFAULT '{}', lease_ids uuid[] DEFAULT '{}',
    lease interval DEFAULT '15 seconds')
RETURNS TABLE (job_id uuid, outcome text) -- renewed | locked | lost | drain
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    renewed uuid[];
BEGIN
    lease := faultline.checked_lease(lease);
    UPDATE faultline.workers SET last_heartbeat_at = clock_timestamp(), server_started_at = pg_postmaster_start_time(), lost_at = NULL
    WHERE id = (SELECT w.id FROM faultline.workers AS w WHERE w.id = worker FOR NO KEY UPDATE SKIP LOCKED);
    WITH locked_here AS MATERIALIZED (
        SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),
    held AS (
        UPDATE faultline.jobs AS j
        SET lease_expires_at = clock_timestamp() + lease, lease_seconds = extract(epoch FROM lease)
        FROM unnest(job_ids, fencing_tokens, lease_ids) AS mine (job_id, token, lease_id)
        WHERE j.id = mine.job_id AND j.id = ANY (ARRAY(SELECT l.id FROM locked_here AS l))
          AND faultline.is_holder(j, mine.token, mine.lease_id)
        RETURNING j.lease_id)
    SELECT array_agg(h.lease_id) INTO renewed FROM held AS h;
    IF cardinality(renewed) = cardinality(job_ids) THEN
        RETURN QUERY SELECT mine.job_id, 'renewed' FROM unnest(job_ids) AS mine (job_id);
    ELSE
        RETURN QUERY
            SELECT mine.job_id,
                   CASE WHEN done.lease_id IS NOT NULL AND mine.token = j.fencing_token THEN 'renewed'
                        WHEN faultline.is_holder(j, mine.token, mine.lease_id) THEN 'locked' ELSE 'lost' END
            FROM unnest(job_ids, fencing_tokens, lease_ids) AS mine (job_id, token, lease_id)
            LEFT JOIN unnest(renewed) AS done (lease_id) ON done.lease_id = mine.lease_id
            LEFT JOIN faultline.jobs AS j ON j.id = mine.job_id;
    END IF;
    RETURN QUERY
        SELECT NULL::uuid, 'drain' FROM faultline.workers AS w WHERE w.id = worker AND w.drain_requested_at IS NOT NULL;
END $$;

-- ── Commit ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Checks the fence in the middle of a job. The result stays true until the caller's transaction ends, because the row stays
-- locked: claims and reconcilers skip the job, and heartbeats still renew its lease. Above READ COMMITTED a renewal would make
-- the commit fail, so the lock excludes heartbeats too; such a transaction must be shorter than its lease. faultline.held_jobs
-- lists the jobs locked in that way. limit_idling (intervals.sql) ends the session of a client that freezes in a transaction.
CREATE OR REPLACE FUNCTION faultline.assert_fence(
    job_id uuid, fencing_token bigint, lease_id uuid, idle_limit interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job       faultline.jobs;
    violation text;
    idling    text;
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = assert_fence.job_id FOR KEY SHARE;
    ELSE
        SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = assert_fence.job_id FOR NO KEY UPDATE;
        PERFORM set_config('faultline.held_jobs',
                           concat_ws(' ', current_setting('faultline.held_jobs', true), assert_fence.job_id), true);
    END IF;
    violation := faultline.fence_violation(job, assert_fence.fencing_token, assert_fence.lease_id);
    IF violation IS NOT NULL THEN
        PERFORM faultline.refuse_stale(violation, assert_fence.job_id, assert_fence.fencing_token, job.fencing_token);
    END IF;
    idling := faultline.limit_idling(idle_limit);
END $$;

-- Commits a job. Safe because the insert is the commit, and its trigger enter_ledger checks the fence. If the job has an entry
-- already, even the caller's own, it raises too: otherwise a transaction that is sent twice would apply its other writes twice.
CREATE OR REPLACE FUNCTION faultline.commit(
    job_id uuid, fencing_token bigint, lease_id uuid, result jsonb DEFAULT NULL, idle_limit interval DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    idling text := faultline.limit_idling(idle_limit);
BEGIN
    IF current_setting('faultline.batch', true) = 'on' THEN -- set by the client: it would skip enter_ledger
        idling := set_config('faultline.batch', '', true);
    END IF;
    INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, result)
    VALUES (commit.job_id, commit.fencing_token, commit.lease_id, commit.result);
END $$;

-- Runs before any client inserts a row into the ledger. Safe because the job's row stays locked until the transaction ends: if
-- the lease expires before COMMIT, no other worker gets the job.
CREATE OR REPLACE FUNCTION faultline.enter_ledger() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job       faultline.jobs;
    violation text;
    ignored   text; -- an assignment calls set_config faster than PERFORM, which runs a whole query
    writer    xid;
BEGIN
    -- Above READ COMMITTED, a renewal after the snapshot makes the commit of a valid lease fail (40001). assert_fence prevents it.
    IF current_setting('transaction_isolation') <> 'read committed'
       AND NOT NEW.job_id::text = ANY (string_to_array(coalesce(current_setting('faultline.held_jobs', true), ''), ' ')) THEN
        PERFORM faultline.refuse_in_savepoint(NEW.job_id); -- FL009 inside a savepoint, which could roll FL007 back
        RAISE EXCEPTION 'job % is not locked by this % transaction',
            NEW.job_id, current_setting('transaction_isolation') USING ERRCODE = 'FL007',
            HINT = 'Call faultline.assert_fence(job_id, fencing_token, lease_id) as its first statement.';
    END IF;
    SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id FOR UPDATE;
    violation := faultline.fence_violation(job, NEW.fencing_token, NEW.lease_id);
    IF violation IS NOT NULL THEN
        PERFORM faultline.refuse_stale(violation, NEW.job_id, NEW.fencing_token, job.fencing_token);
    END IF;
    ignored := set_config('faultline.verb', 'commit', true);
    UPDATE faultline.jobs SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = NEW.job_id
    RETURNING xmin INTO writer;
    ignored := set_config('faultline.verb', '', true);
    -- Inside a savepoint a subtransaction writes the row. ROLLBACK TO SAVEPOINT would then remove the entry and keep the caller's
    -- other writes, so refuse_half_way raises FL009. It is allowed if open_transaction has queued a check for the COMMIT:
    -- faultline.opened is then the mark of this transaction and lease. (All of these are in handler_transactions.sql.)
    IF writer <> pg_current_xact_id()::xid
       AND current_setting('faultline.opened', true) IS DISTINCT FROM faultline.transaction_mark(NEW.lease_id, true) THEN
        PERFORM faultline.refuse_half_way('enters the ledger inside a savepoint', NEW.job_id,
            'Commit the job outside of savepoints and nested transactions, or begin the transaction with '
            'job.expect_commit(conn) or faultline.open_transaction().');
    END IF;
    NEW.worker := job.lease_owner;
    NEW.committed_at := clock_timestamp();
    ignored := set_config('faultline.offered', -- for seal_ledger: the rows of this statement so far
        (coalesce(nullif(current_setting('faultline.offered', true), ''), '0')::bigint + 1)::text, true);
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER enter_ledger BEFORE INSERT ON faultline.ledger FOR EACH ROW
WHEN (current_setting('faultline.batch', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION faultline.enter_ledger();

-- Commits many jobs in one round trip. Safe because it locks all rows without waiting, checks the fence of each, and inserts only
-- the entries that pass; seal_ledger checks them again. If all leases hold, one statement locks and checks them; else each is
-- judged on its own, after its row was locked. The caller has no other writes here, so a batch may be sent twice: a job that is
-- in the ledger under the same token and lease is reported as already_yours.
CREATE OR REPLACE FUNCTION faultline.commit_many(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], results jsonb[] DEFAULT NULL)
RETURNS TABLE (job_id uuid, outcome text, reason text, current_token bigint) -- committed | already_yours | locked | stale
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    locked_here uuid[];
    verdicts    text[];
    tokens      bigint[] := fencing_tokens;
    owners      text[];
    ignored     text;
BEGIN
    SELECT array_agg(h.lease_owner ORDER BY h.ordinal) INTO owners
    FROM (SELECT mine.ordinal, j.lease_owner
          FROM unnest(job_ids, fencing_tokens, lease_ids) WITH ORDINALITY AS mine (job_id, token, lease_id, ordinal)
          JOIN faultline.jobs AS j ON j.id = mine.job_id
          WHERE j.id = ANY (job_ids) AND faultline.fence_violation(j, mine.token, mine.lease_id) IS NULL
          FOR UPDATE OF j SKIP LOCKED) AS h;
    IF cardinality(owners) = cardinality(job_ids) THEN
        verdicts := array_fill('committed'::text, ARRAY[cardinality(owners)]);
    ELSE
        locked_here := ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (job_ids)
                             ORDER BY j.id FOR UPDATE SKIP LOCKED);
        SELECT array_agg(CASE WHEN judged.violation <> 'lease_expired' OR (judged.is_locked_here AND judged.violation IS NOT NULL)
                                  THEN judged.violation -- if another session locks the row, it may be renewing the lease
                              WHEN judged.is_locked_here THEN 'committed' ELSE 'locked' END ORDER BY judged.ordinal),
               array_agg(judged.fencing_token ORDER BY judged.ordinal), array_agg(judged.lease_owner ORDER BY judged.ordinal)
        INTO verdicts, tokens, owners
        FROM (SELECT mine.ordinal, j.fencing_token, j.lease_owner, l.id IS NOT NULL AS is_locked_here,
                     faultline.fence_violation(j, mine.token, mine.lease_id) AS violation
              FROM unnest(job_ids, fencing_tokens, lease_ids) WITH ORDINALITY AS mine (job_id, token, lease_id, ordinal)
              LEFT JOIN faultline.jobs AS j ON j.id = mine.job_id
              LEFT JOIN unnest(locked_here) AS l (id) ON l.id = mine.job_id) AS judged;
    END IF;
    IF 'committed' = ANY (verdicts) THEN
        ignored := set_config('faultline.batch', 'on', true);
        INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, worker, result)
        SELECT DISTINCT ON (mine.job_id) mine.job_id, mine.token, mine.lease_id, mine.owner, mine.result
        FROM unnest(job_ids, fencing_tokens, lease_ids, results, verdicts, owners)
             AS mine (job_id, token, lease_id, result, verdict, owner)
        WHERE mine.verdict = 'committed';
        ignored := set_config('faultline.batch', '', true);
    END IF;
    RETURN QUERY
        SELECT mine.job_id,
               CASE WHEN mine.verdict IN ('committed', 'locked') THEN mine.verdict
                    WHEN mine.verdict = 'already_committed' THEN 'already_yours' ELSE 'stale' END,
               CASE WHEN mine.verdict NOT IN ('committed', 'locked', 'already_committed') THEN mine.verdict END,
               mine.token
        FROM unnest(job_ids, verdicts, tokens) AS mine (job_id, verdict, token);
END $$;

-- Runs after every INSERT or MERGE into the ledger, even if it added no row. Without a row (ON CONFLICT DO NOTHING, WHERE NOT
-- EXISTS) nothing is committed, but the caller believes it is, so the caller's other writes are refused too. commit_many sets
-- faultline.batch to skip the row-by-row work of enter_ledger: then this trigger is the fence, also for a client that sets
-- faultline.batch itself.
CREATE OR REPLACE FUNCTION faultline.seal_ledger() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    offered       text := nullif(current_setting('faultline.offered', true), '');
    entered       bigint;
    job_ids       uuid[];
    tokens        bigint[];
    leases        uuid[];
BEGIN
    IF current_setting('faultline.batch', true) = 'on' THEN
        SELECT count(*), array_agg(e.job_id), array_agg(e.fencing_token), array_agg(e.lease_id)
        INTO entered, job_ids, tokens, leases FROM entries AS e;
    ELSE
        entered := (SELECT count(*) FROM entries);
    END IF;
    IF entered = 0 THEN
        PERFORM faultline.refuse_stale('nothing_entered', NULL, NULL, NULL);
    END IF;
    IF offered IS NOT NULL THEN
        IF offered::bigint <> entered THEN -- a user's trigger or a conflict removed some
            PERFORM faultline.refuse_stale('not_all_entered', NULL, NULL, NULL);
        END IF;
        offered := set_config('faultline.offered', '', true);
    END IF;
    IF job_ids IS NOT NULL THEN
        PERFORM faultline.finish_jobs(job_ids, tokens, leases);
    END IF;
    RETURN NULL;
END $$;

-- Ends jobs that have just been entered together, each under its own fence, or refuses all of them. The array of ids makes the
-- plan use the primary key. Nested loops are off, because a plan that was made for one entry took 1.7 times the CPU for 500.
CREATE OR REPLACE FUNCTION faultline.finish_jobs(job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ignored   text;
    committed bigint;
BEGIN
    ignored := set_config('faultline.verb', 'commit', true);
    UPDATE faultline.jobs AS j SET state = 'succeeded', finished_at = clock_timestamp()
    FROM unnest(job_ids, fencing_tokens, lease_ids) AS e (job_id, fencing_token, lease_id)
    WHERE j.id = e.job_id AND j.id = ANY (job_ids)
      AND faultline.fence_violation(j, e.fencing_token, e.lease_id) IS NULL;
    GET DIAGNOSTICS committed = ROW_COUNT;
    ignored := set_config('faultline.verb', '', true);
    IF committed <> cardinality(job_ids) THEN
        PERFORM faultline.refuse_stale_jobs(job_ids, fencing_tokens, lease_ids, true);
        PERFORM faultline.refuse_stale('already_committed', NULL, NULL, NULL);
    END IF;
    PERFORM faultline.refuse_half_way('enters the ledger inside a savepoint', j.id,
                'Commit jobs outside of savepoints and nested transactions.')
    FROM faultline.jobs AS j WHERE j.id = job_ids[1] AND j.xmin <> pg_current_xact_id()::xid;
END $$;

CREATE OR REPLACE TRIGGER seal_ledger AFTER INSERT ON faultline.ledger
REFERENCING NEW TABLE AS entries FOR EACH STATEMENT EXECUTE FUNCTION faultline.seal_ledger();

-- ── Fail, release, reconcile ───────────────────────────────────────────────────────────────────────────────────────

-- Locks the job for its holder, whose lease may have expired; refuses every other caller.
CREATE OR REPLACE FUNCTION faultline.lock_own(job_id uuid, fencing_token bigint, lease_id uuid) RETURNS faultline.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job       faultline.jobs;
    violation text;
BEGIN
    SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id FOR UPDATE;
    violation := faultline.fence_violation(job, lock_own.fencing_token, lock_own.lease_id);
    IF violation <> 'lease_expired' THEN
        PERFORM faultline.refuse_stale(violation, lock_own.job_id, lock_own.fencing_token, job.fencing_token);
    END IF;
    RETURN job;
END $$;

-- Ends an attempt that failed: the job is queued again after retry_in, or failed if no attempts are left or a reason is given.
-- Safe because it is fenced like a commit, under the same lock: of a late commit and a failure, the second is refused.
CREATE OR REPLACE FUNCTION faultline.fail(
    job_id uuid, fencing_token bigint, lease_id uuid, error text DEFAULT NULL,
    retry_in interval DEFAULT '10 seconds', reason text DEFAULT NULL)
RETURNS TABLE (state text, next_run_at timestamptz, failed_reason text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job          faultline.jobs := faultline.lock_own(fail.job_id, fail.fencing_token, fail.lease_id);
    final_reason text := coalesce(fail.reason, CASE WHEN job.attempts >= job.max_attempts THEN 'attempts_spent' END);
BEGIN
    IF final_reason IS NULL THEN
        retry_in := faultline.checked_delay(retry_in);
    END IF;
    IF length(fail.reason) NOT BETWEEN 1 AND 100 OR fail.reason IN ('cancelled', 'attempts_spent') THEN
        RAISE EXCEPTION 'a worker cannot give % as the reason of a failure', quote_literal(left(fail.reason, 100))
            USING ERRCODE = 'FL005',
            HINT = 'Give a reason of 1 to 100 characters other than cancelled and attempts_spent, which Faultline sets itself.';
    END IF;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'failed', left(fail.error, 10000), job.claimed_at);
    PERFORM faultline.wake(job.queue) WHERE final_reason IS NULL AND retry_in <= '0';
    RETURN QUERY
        UPDATE faultline.jobs AS j
        SET state = CASE WHEN final_reason IS NULL THEN 'queued' ELSE 'failed' END,
            failed_reason = final_reason,
            finished_at = CASE WHEN final_reason IS NOT NULL THEN clock_timestamp() END,
            next_run_at = CASE WHEN final_reason IS NULL THEN clock_timestamp() + retry_in ELSE j.next_run_at END,
            last_error = left(fail.error, 10000), lease_owner = NULL, lease_expires_at = NULL
        WHERE j.id = job.id
        RETURNING j.state, j.next_run_at, j.failed_reason;
END $$;

-- Queues a job again that the worker will not finish. The attempt does not count: a deployment must not use up a job's
-- attempts. Safe for the same reason as fail.
CREATE OR REPLACE FUNCTION faultline.release(job_id uuid, fencing_token bigint, lease_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_own(release.job_id, release.fencing_token, release.lease_id);
BEGIN
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'released', job.claimed_at);
    UPDATE faultline.jobs SET state = 'queued', attempts = attempts - 1, lease_owner = NULL, lease_expires_at = NULL,
                              next_run_at = least(next_run_at, clock_timestamp())
    WHERE id = job.id;
    PERFORM faultline.wake(job.queue);
END $$;
