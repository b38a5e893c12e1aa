-- Transactions of jobs: PostgreSQL refuses to commit one of them half-way.
--
--   BEGIN; open_transaction(…);  -- the job's row is locked for its holder, and a check is queued for the end
--   …                            -- the handler's own statements, savepoints included
--   close_transaction(…); COMMIT -- the entry in the ledger; the queued check finds it and lets the COMMIT pass
--
-- The check is the event of a deferred constraint trigger. It runs at COMMIT, COMMIT AND CHAIN or PREPARE TRANSACTION, whatever
-- client sends it and however it is spelled, and raises FL009 unless the transaction was finished. Nothing of it is kept then.
-- Two settings, local to the transaction, carry what happened in it: faultline.opened and faultline.closed hold its id and the
-- lease. PostgreSQL takes a setting back together with the savepoint that it was made in, as it does with the entry itself.

CREATE OR REPLACE FUNCTION faultline.transaction_mark(lease_id uuid, completes boolean) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT concat_ws(' ', pg_catalog.pg_current_xact_id(), lease_id, CASE WHEN completes THEN 'job' ELSE 'step' END)
$$;

CREATE OR REPLACE FUNCTION faultline.refuse_half_way(problem text, job_id uuid, advice text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the transaction of job % %', job_id, problem USING
        ERRCODE = 'FL009', DETAIL = json_build_object('job_id', job_id)::text, HINT = advice;
END $$;

-- Raises FL009 inside a savepoint. Only for errors that a caller at the top of its transaction gets instead: it costs an insert.
CREATE OR REPLACE FUNCTION faultline.refuse_in_savepoint(job_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    writer xid;
BEGIN
    INSERT INTO faultline.open_transactions (job_id, fencing_token, lease_id, completes)
    VALUES (refuse_in_savepoint.job_id, 0, refuse_in_savepoint.job_id, true) RETURNING xmin INTO writer;
    IF writer <> pg_current_xact_id()::xid THEN
        PERFORM faultline.refuse_half_way('was to be entered in the ledger inside a savepoint', refuse_in_savepoint.job_id,
            'Enter it outside of savepoints and nested transactions.');
    END IF;
END $$;

-- Safe because the row is locked as by assert_fence, and because only a transaction that also closes what it opened can
-- commit. It must be called outside of any savepoint: the check would vanish together with the savepoint. Called outside of
-- a transaction block it is refused by its own check, since its statement is then the whole transaction.
-- The row is removed at once. The queued event still finds it, and no committed transaction leaves one behind.
CREATE OR REPLACE FUNCTION faultline.open_transaction(
    job_id uuid, fencing_token bigint, lease_id uuid, completes boolean DEFAULT true, idle_limit interval DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place  tid;
    writer xid;
    mark   text;
BEGIN
    PERFORM faultline.assert_fence(
        open_transaction.job_id, open_transaction.fencing_token, open_transaction.lease_id, idle_limit);
    INSERT INTO faultline.open_transactions (job_id, fencing_token, lease_id, completes)
    VALUES (open_transaction.job_id, open_transaction.fencing_token, open_transaction.lease_id, open_transaction.completes)
    RETURNING ctid, xmin INTO place, writer;
    IF writer <> pg_current_xact_id()::xid THEN
        PERFORM faultline.refuse_half_way('was opened inside a savepoint', open_transaction.job_id,
            'Open it before the first savepoint, and outside of nested transactions.');
    END IF;
    DELETE FROM faultline.open_transactions WHERE ctid = place;
    mark := set_config('faultline.opened', faultline.transaction_mark(open_transaction.lease_id, completes), true);
END $$;

-- Safe because it demands the opening in the same transaction: after a ROLLBACK by hand there is none, and no success without
-- the statements that were lost with it. For a job it is the entry in the ledger; for a step it only lets the COMMIT pass.
CREATE OR REPLACE FUNCTION faultline.close_transaction(
    job_id uuid, fencing_token bigint, lease_id uuid, result jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened text := current_setting('faultline.opened', true);
BEGIN
    IF opened = faultline.transaction_mark(close_transaction.lease_id, true) THEN
        INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, result)
        VALUES (close_transaction.job_id, close_transaction.fencing_token, close_transaction.lease_id,
                close_transaction.result);
    ELSIF opened = faultline.transaction_mark(close_transaction.lease_id, false) THEN
        opened := set_config('faultline.closed', opened, true);
    ELSE
        PERFORM faultline.refuse_half_way('is not the one that was opened for it', close_transaction.job_id,
            'It was committed or rolled back in between, or never opened: run all of it again in one transaction.');
    END IF;
END $$;

-- Undo what an earlier job left in this session, in one statement: settings (the given ones are set again), session locks,
-- temporary tables, sequences, channels and cursors. Statements that a driver has prepared stay. A rollback undoes it, and so
-- every block begins with it. It runs with the caller's rights and search_path, so built-in names are written out.
CREATE OR REPLACE FUNCTION faultline.reset_session(names text[], settings text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ignored text; -- assigned, not performed: see enter_ledger
BEGIN
    RESET ALL;
    FOR i IN 1 .. pg_catalog.cardinality(names) LOOP
        ignored := pg_catalog.set_config(names[i], settings[i], false);
    END LOOP;
    ignored := pg_catalog.pg_advisory_unlock_all();
    IF pg_catalog.pg_my_temp_schema() <> 0 THEN
        DISCARD TEMP;
    END IF;
    DISCARD SEQUENCES;
    UNLISTEN *; -- free for a session that has never listened
    EXECUTE 'CLOSE ALL'; -- PL/pgSQL has a CLOSE of its own
END $$;

-- Runs as the transaction commits. A job's transaction must hold its entry in the ledger, a step's must have been closed.
CREATE OR REPLACE FUNCTION faultline.refuse_unfinished() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.completes THEN
        PERFORM FROM faultline.ledger AS l
        WHERE l.job_id = NEW.job_id AND l.fencing_token = NEW.fencing_token AND l.lease_id = NEW.lease_id;
        IF NOT FOUND THEN
            PERFORM faultline.refuse_half_way('was to be committed without its entry in the ledger', NEW.job_id,
                'Enter the job first: job.commit(conn), or faultline.commit(), outside of a savepoint that is rolled back.');
        END IF;
    ELSIF current_setting('faultline.closed', true) IS DISTINCT FROM faultline.transaction_mark(NEW.lease_id, false) THEN
        PERFORM faultline.refuse_half_way('was to be committed before its block had ended', NEW.job_id,
            'COMMIT belongs to the end of the block: call faultline.close_transaction() first.');
    END IF;
    RETURN NULL;
END $$;

-- PostgreSQL has no CREATE OR REPLACE for a constraint trigger; dropping one that is in place would lock the table.
DO $$
BEGIN
    PERFORM FROM pg_trigger WHERE tgrelid = 'faultline.open_transactions'::regclass
        AND tgname = 'refuse_unfinished' AND tgenabled IN ('O', 'A');
    IF NOT FOUND THEN
        DROP TRIGGER IF EXISTS refuse_unfinished ON faultline.open_transactions;
        CREATE CONSTRAINT TRIGGER refuse_unfinished AFTER INSERT ON faultline.open_transactions
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.refuse_unfinished();
    END IF;
END $$;
