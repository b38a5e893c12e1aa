-- Guards: triggers that refuse illegal changes to jobs and the ledger, from any client.
-- A legal change pays for the WHEN clauses only: the functions below do nothing but raise.
-- Not defended: a superuser, session_replication_role = replica, and an owner of these tables who disables a trigger, adds one,
-- or sets faultline.verb or faultline.batch. With roles.sql no process is an owner; `faultline verify` finds traces.
--
-- The functions that may do a guarded change set `faultline.verb` for that one statement. A setting, because pg_trigger_depth()
-- also counts users' triggers; set in their bodies, because only a superuser can create a function with such a SET clause.

-- Raises the refusal of a stale lease, for a reason of fence_violation (protocol.sql).
CREATE OR REPLACE FUNCTION faultline.refuse_stale(reason text, job_id uuid, stale_token bigint, current_token bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'stale lease: %', reason USING
        ERRCODE = 'FL001', DETAIL = json_build_object('reason', reason, 'job_id', job_id,
                                   'stale_token', stale_token, 'current_token', current_token)::text,
        HINT = 'Roll back: this caller does not hold the job, or no longer does.';
END $$;

CREATE OR REPLACE FUNCTION faultline.refuse_job_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'a new job is queued and has never been claimed, not % with token %', NEW.state, NEW.fencing_token
        USING ERRCODE = 'FL002', HINT = 'Use faultline.enqueue(), and faultline.commit() when it is done.';
END $$;

CREATE OR REPLACE TRIGGER guard_insert BEFORE INSERT ON faultline.jobs FOR EACH ROW
WHEN (NEW.state <> 'queued' OR NEW.fencing_token <> 0 OR NEW.lease_id IS NOT NULL)
EXECUTE FUNCTION faultline.refuse_job_insert();

CREATE OR REPLACE FUNCTION faultline.refuse_job_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.state = 'succeeded' THEN
        RAISE EXCEPTION 'job % has succeeded; that is final', OLD.id
            USING ERRCODE = 'FL002', HINT = 'Enqueue a new job to do the work again.';
    ELSIF OLD.state = 'failed' AND NEW.state <> 'failed' THEN
        RAISE EXCEPTION 'job % has failed, and a failed job does not change its state', OLD.id
            USING ERRCODE = 'FL002', HINT = 'To run it again, use faultline.retry(job_id).';
    ELSIF NEW.state = 'succeeded' THEN
        RAISE EXCEPTION 'job % can succeed only by its entry in faultline.ledger', OLD.id
            USING ERRCODE = 'FL002', HINT = 'Use faultline.commit(job_id, fencing_token, lease_id).';
    ELSIF NEW.id <> OLD.id THEN
        RAISE EXCEPTION 'the id of job % never changes', OLD.id
            USING ERRCODE = 'FL002', HINT = 'Enqueue a new job instead.';
    ELSIF NEW.fencing_token < OLD.fencing_token THEN
        RAISE EXCEPTION 'the fencing token of job % never goes down (% to %)',
            OLD.id, OLD.fencing_token, NEW.fencing_token
            USING ERRCODE = 'FL003', HINT = 'Leave the token to faultline.claim().';
    ELSE
        RAISE EXCEPTION 'job % needs a higher fencing token and a new lease_id together whenever it is claimed', OLD.id
            USING ERRCODE = 'FL003', HINT = 'Use faultline.claim().';
    END IF;
END $$;

CREATE OR REPLACE TRIGGER guard_update BEFORE UPDATE ON faultline.jobs FOR EACH ROW
WHEN (
    -- a finished job stays finished
    (OLD.state = 'succeeded'
        AND (NEW.state <> 'succeeded' OR NEW.fencing_token <> OLD.fencing_token OR NEW.lease_id IS DISTINCT FROM OLD.lease_id))
    OR (OLD.state = 'failed' AND NEW.state <> 'failed'
        AND current_setting('faultline.verb', true) IS DISTINCT FROM 'retry')
    OR (NEW.state = 'succeeded' AND OLD.state <> 'succeeded'
        AND current_setting('faultline.verb', true) IS DISTINCT FROM 'commit')
    OR NEW.id <> OLD.id
    -- a token is issued once
    OR NEW.fencing_token < OLD.fencing_token
    OR (NEW.state = 'running' AND OLD.state <> 'running' AND NEW.fencing_token = OLD.fencing_token)
    OR (NEW.fencing_token = OLD.fencing_token) <> (NEW.lease_id IS NOT DISTINCT FROM OLD.lease_id))
EXECUTE FUNCTION faultline.refuse_job_update();

CREATE OR REPLACE FUNCTION faultline.refuse_ledger_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'entries in the ledger are never changed, and removed by retention alone (%)', TG_OP
        USING ERRCODE = 'FL002', HINT = 'To remove old entries, use faultline.purge_ledger().';
END $$;

CREATE OR REPLACE TRIGGER guard_update BEFORE UPDATE ON faultline.ledger FOR EACH ROW
EXECUTE FUNCTION faultline.refuse_ledger_change();

CREATE OR REPLACE TRIGGER guard_delete BEFORE DELETE ON faultline.ledger FOR EACH ROW
WHEN (current_setting('faultline.verb', true) IS DISTINCT FROM 'retention')
EXECUTE FUNCTION faultline.refuse_ledger_change();

CREATE OR REPLACE TRIGGER guard_truncate BEFORE TRUNCATE ON faultline.ledger FOR EACH STATEMENT
EXECUTE FUNCTION faultline.refuse_ledger_change();

-- The table's CHECK has the same limit. But the error of a CHECK shows the failing row, so PostgreSQL would write out the whole
-- text of the result: up to a gigabyte, for a few kilobytes that a worker sent.
CREATE OR REPLACE FUNCTION faultline.refuse_oversized_result() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF faultline.json_text_bound(NEW.result) > 8388608 THEN
        RAISE EXCEPTION 'the text of a result has at most 8 MiB' USING ERRCODE = 'check_violation',
            SCHEMA = 'faultline', TABLE = 'ledger', CONSTRAINT = 'result_is_at_most_8_mib';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER bound_result BEFORE INSERT ON faultline.ledger FOR EACH ROW
WHEN (pg_column_size('{}'::jsonb || NEW.result) > 640)
EXECUTE FUNCTION faultline.refuse_oversized_result();
