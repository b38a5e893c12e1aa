-- The control: the same tables, verbs and worker with the fence taken away: the comparison of token, lease and clock, the
-- ledger's keys, the seal on batches, and the guard that would stop a finished job from being finished again.
-- Applied on top of a migrated database, never to one that anybody relies on.

CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid) RETURNS text
LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$;

ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_pkey;
ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_job_id_fencing_token_key;
CREATE OR REPLACE FUNCTION faultline.seal_ledger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE OR REPLACE FUNCTION faultline.refuse_job_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER enter_ledger BEFORE INSERT ON faultline.ledger FOR EACH ROW
EXECUTE FUNCTION faultline.enter_ledger();
