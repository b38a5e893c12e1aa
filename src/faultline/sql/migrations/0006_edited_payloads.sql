-- Payloads that operators replaced, in the history of their job; functions that act on many jobs.
ALTER TABLE faultline.attempts_log
    ADD COLUMN former_payload jsonb,
    DROP CONSTRAINT outcome_is_known,
    ADD CONSTRAINT outcome_is_known CHECK (
        outcome IN ('expired', 'worker_lost', 'failed', 'released', 'cancelled', 'retried', 'edited')) NOT VALID;
