-- Each job costs fewer index entries. The ledger's primary key implies the pair of job and token.
ALTER TABLE faultline.ledger DROP CONSTRAINT IF EXISTS ledger_job_id_fencing_token_key;
