-- The control: the same tables, verbs and worker with the fence taken away: the comparison of token, lease and clock, the
-- ledger's keys, the check of a transaction at its COMMIT, and the guard that would stop a finished job from being finished again. What is left costs what it
-- costs in Faultline, so the two can also be timed against each other.
-- Applied on top of a migrated database, never to one that anybody relies on.

CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid) RETURNS text
LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$;

ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_pkey;
ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_job_id_fencing_token_key;
CREATE OR REPLACE FUNCTION faultline.seal_ledger() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    IF current_setting('faultline.batch', true) = 'on' THEN
        UPDATE faultline.jobs AS j SET state = 'succeeded', finished_at = clock_timestamp()
        WHERE j.id = ANY (ARRAY(SELECT e.job_id FROM entries AS e));
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION faultline.refuse_job_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION faultline.refuse_half_way(problem text, job_id uuid, advice text) RETURNS void
LANGUAGE plpgsql AS $$ BEGIN RETURN; END $$;
-- Without the ledger's keys its look into the ledger would read all of it.
CREATE OR REPLACE FUNCTION faultline.refuse_unfinished() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
