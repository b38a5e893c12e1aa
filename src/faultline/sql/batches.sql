-- A batch handler's transaction: many jobs of one worker that take effect together, each under its own fence.
--
--   BEGIN; open_batch(…);          -- locks the rows of all jobs in the order of their ids, and queues a check for the end
--   …                              -- the handler's own statements, savepoints included
--   close_batch(…); COMMIT         -- inserts one ledger entry per job; the queued check finds them and lets the COMMIT pass
--
-- The same rules hold as for one job (handler_transactions.sql), for each of the jobs. If one lease does not hold, all of the
-- transaction is refused: its writes are for all of its jobs, and PostgreSQL cannot tell which are for which.

-- Refuses a transaction for those of its jobs whose leases do not hold. The caller has locked the rows. The detail of the error
-- describes the first of them as refuse_stale does, and lists all of them under `jobs`. `ended` are jobs that the caller's own
-- statement has just ended; they hold.
CREATE OR REPLACE FUNCTION faultline.refuse_stale_jobs(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], ended boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    stale jsonb;
BEGIN
    SELECT jsonb_agg(jsonb_build_object('job_id', judged.job_id, 'reason', judged.violation, 'stale_token', judged.token,
                                        'current_token', judged.fencing_token) ORDER BY judged.job_id)
    INTO stale
    FROM (SELECT mine.job_id, mine.token, j.fencing_token, faultline.fence_violation(j, mine.token, mine.lease_id) AS violation
          FROM unnest(job_ids, fencing_tokens, lease_ids) AS mine (job_id, token, lease_id)
          LEFT JOIN faultline.jobs AS j ON j.id = mine.job_id) AS judged
    WHERE judged.violation IS NOT NULL AND NOT (ended AND judged.violation = 'already_committed');
    IF stale IS NOT NULL THEN
        RAISE EXCEPTION 'stale lease: %', stale -> 0 ->> 'reason' USING
            ERRCODE = 'FL001', DETAIL = ((stale -> 0) || jsonb_build_object('jobs', stale))::text,
            HINT = 'Roll back: this caller does not hold the job, or no longer does.';
    END IF;
END $$;

-- The name of a batch in the settings and in open_transactions: different leases make a different batch.
CREATE OR REPLACE FUNCTION faultline.batch_id(lease_ids uuid[]) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$ SELECT md5(array_to_string(lease_ids, ' '))::uuid $$;

-- Begins the transaction of a batch. Safe because it locks all rows as assert_fence does and then judges each of them, and
-- because a transaction that was opened and not closed cannot commit. The order of the locks keeps two batches that wait for
-- each other's rows from a deadlock.
CREATE OR REPLACE FUNCTION faultline.open_batch(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], completes boolean DEFAULT true, idle_limit interval DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    batch   uuid := faultline.batch_id(lease_ids);
    row_tid tid;
    writer  xid;
    ignored text; -- an assignment calls a function faster than PERFORM, which runs a whole query
BEGIN
    IF (cardinality(job_ids) BETWEEN 1 AND 10000 AND cardinality(fencing_tokens) = cardinality(job_ids)
        AND cardinality(lease_ids) = cardinality(job_ids)) IS NOT TRUE THEN
        RAISE EXCEPTION 'a batch has 1 to 10000 jobs, with a token and a lease for each' USING ERRCODE = 'FL005';
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id FOR KEY SHARE;
    ELSE
        PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id FOR NO KEY UPDATE;
        ignored := set_config('faultline.held_jobs', concat_ws(' ', current_setting('faultline.held_jobs', true),
                                                               array_to_string(job_ids, ' ')), true);
    END IF;
    PERFORM faultline.refuse_stale_jobs(job_ids, fencing_tokens, lease_ids);
    ignored := faultline.limit_idling(idle_limit);
    INSERT INTO faultline.open_transactions (job_id, fencing_token, lease_id, completes, batch_id)
    VALUES (job_ids[1], fencing_tokens[1], lease_ids[1], completes, batch)
    RETURNING ctid, xmin INTO row_tid, writer;
    IF writer <> pg_current_xact_id()::xid THEN
        PERFORM faultline.refuse_half_way('was opened inside a savepoint', job_ids[1],
            'Open it before the first savepoint, and outside of nested transactions.');
    END IF;
    DELETE FROM faultline.open_transactions WHERE ctid = row_tid;
    ignored := set_config('faultline.opened', faultline.transaction_mark(batch, completes), true);
END $$;

-- Ends it, for the jobs that were opened and no others. Safe because seal_ledger judges every entry again, and because a job
-- without an entry refuses all of them. For a step it allows the COMMIT.
CREATE OR REPLACE FUNCTION faultline.close_batch(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], results jsonb[] DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    batch   uuid := faultline.batch_id(lease_ids);
    opened  text := current_setting('faultline.opened', true);
    entered integer;
    ignored text;
BEGIN
    IF opened = faultline.transaction_mark(batch, true) THEN
        ignored := set_config('faultline.batch', 'on', true);
        INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, worker, result)
        SELECT mine.job_id, mine.token, mine.lease_id, j.lease_owner, mine.result
        FROM unnest(job_ids, fencing_tokens, lease_ids, results) AS mine (job_id, token, lease_id, result)
        JOIN faultline.jobs AS j ON j.id = mine.job_id;
        GET DIAGNOSTICS entered = ROW_COUNT;
        ignored := set_config('faultline.batch', '', true);
        IF entered <> cardinality(job_ids) THEN
            PERFORM faultline.refuse_stale('not_all_entered', NULL, NULL, NULL);
        END IF;
    ELSIF opened IS DISTINCT FROM faultline.transaction_mark(batch, false) THEN
        PERFORM faultline.refuse_half_way('is not the one that was opened for it', job_ids[1],
            'It was committed or rolled back in between, or never opened. Run all of it again in one transaction.');
    END IF;
    ignored := set_config('faultline.closed', opened, true);
END $$;
