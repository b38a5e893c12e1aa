-- A handler's transaction commits with its ledger entry, or not at all: PostgreSQL checks it at COMMIT.
--
--   BEGIN; open_transaction(…);  -- locks the job's row for its holder, and queues a check for the end
--   …                            -- the handler's own statements, savepoints included
--   close_transaction(…); COMMIT -- inserts the ledger entry; the queued check finds it and lets the COMMIT pass
--
-- The check is the event of a deferred constraint trigger. It runs at COMMIT, COMMIT AND CHAIN and PREPARE TRANSACTION, whichever
-- client sends them and however they are spelled, and raises FL009 if the transaction was not closed. Then nothing is committed.
-- Two settings, local to the transaction, record what happened in it: faultline.opened and faultline.closed hold its id and the
-- lease. A rollback to a savepoint undoes a setting that was made after the savepoint, as it undoes the entry itself.

-- The value of both settings: this transaction, this lease, and whether it completes the job or only a step of it.
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

-- Raises FL009 inside a savepoint, where a caller could roll back to the savepoint and so ignore another error. PostgreSQL shows
-- a savepoint only by the xmin of a row that was just written, so this costs an insert: call it on the way to an error only.
CREATE OR REPLACE FUNCTION faultline.refuse_in_savepoint(job_id uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    writer xid;
BEGIN
    INSERT INTO faultline.open_transactions (job_id, fencing_token, lease_id, completes)
    VALUES (refuse_in_savepoint.job_id, 0, refuse_in_savepoint.job_id, true) RETURNING xmin INTO writer;
    IF writer <> pg_current_xact_id()::xid THEN
        PERFORM faultline.refuse_half_way('enters the ledger inside a savepoint', refuse_in_savepoint.job_id,
            'Commit the job outside of savepoints and nested transactions.');
    END IF;
END $$;

-- Begins a handler's transaction. Safe because it locks the row as assert_fence does, and because a transaction that was opened
-- and not closed cannot commit. It must be called before any savepoint: rolling back to one would remove the queued check. Called
-- outside of a transaction block it is refused by its own check, because its statement is then the whole transaction.
-- The row is deleted at once. The queued event still has it, and the table stays empty.
CREATE OR REPLACE FUNCTION faultline.open_transaction(
    job_id uuid, fencing_token bigint, lease_id uuid, completes boolean DEFAULT true, idle_limit interval DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_tid tid;
    writer  xid;
    mark    text;
BEGIN
    PERFORM faultline.assert_fence(
        open_transaction.job_id, open_transaction.fencing_token, open_transaction.lease_id, idle_limit);
    INSERT INTO faultline.open_transactions (job_id, fencing_token, lease_id, completes)
    VALUES (open_transaction.job_id, open_transaction.fencing_token, open_transaction.lease_id, open_transaction.completes)
    RETURNING ctid, xmin INTO row_tid, writer;
    IF writer <> pg_current_xact_id()::xid THEN
        PERFORM faultline.refuse_half_way('was opened inside a savepoint', open_transaction.job_id,
            'Open it before the first savepoint, and outside of nested transactions.');
    END IF;
    DELETE FROM faultline.open_transactions WHERE ctid = row_tid;
    mark := set_config('faultline.opened', faultline.transaction_mark(open_transaction.lease_id, completes), true);
END $$;

-- Ends it. Safe because it requires open_transaction in the same transaction: after a ROLLBACK by the handler the job cannot
-- succeed without the statements that were rolled back. For a job it inserts the ledger entry; for a step it allows the COMMIT.
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
            'It was committed or rolled back in between, or never opened. Run all of it again in one transaction.');
    END IF;
END $$;

-- Resets what an earlier job left in this session, in one statement: settings (the given ones are set again), session locks,
-- temporary tables, sequences, channels and cursors. Prepared statements stay. A rollback undoes a reset, so every block
-- begins with one. It runs with the caller's rights and search_path, so names of pg_catalog are qualified.
CREATE OR REPLACE FUNCTION faultline.reset_session(names text[], settings text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ignored text; -- an assignment calls a function faster than PERFORM, which runs a whole query
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
    UNLISTEN *; -- costs nothing in a session that has never listened
    EXECUTE 'CLOSE ALL'; -- a plain CLOSE would be PL/pgSQL's
END $$;

-- Runs as the transaction commits: a job's transaction must have its ledger entry, a step's must have been closed.
CREATE OR REPLACE FUNCTION faultline.refuse_unfinished() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.completes THEN
        PERFORM FROM faultline.ledger AS l
        WHERE l.job_id = NEW.job_id AND l.fencing_token = NEW.fencing_token AND l.lease_id = NEW.lease_id;
        IF NOT FOUND OR (NEW.batch_id IS NOT NULL AND current_setting('faultline.closed', true)
                                                      IS DISTINCT FROM faultline.transaction_mark(NEW.batch_id, true)) THEN
            PERFORM faultline.refuse_half_way('has no ledger entry at COMMIT', NEW.job_id,
                'Call job.commit(conn) or faultline.commit() first, outside of a savepoint that is rolled back.');
        END IF;
    ELSIF current_setting('faultline.closed', true)
          IS DISTINCT FROM faultline.transaction_mark(coalesce(NEW.batch_id, NEW.lease_id), false) THEN
        PERFORM faultline.refuse_half_way('is not closed at COMMIT', NEW.job_id,
            'Leave the COMMIT to the end of the block, or call faultline.close_transaction() first.');
    END IF;
    RETURN NULL;
END $$;

-- PostgreSQL has no CREATE OR REPLACE for constraint triggers, and dropping one that exists would lock the table.
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
