"""SQL that removes one guard from the queue, as a naive implementation would."""

from __future__ import annotations

# Reads first and writes later, without a lock: the state may have changed.
CHECK_THEN_RECONCILE = """
    CREATE OR REPLACE FUNCTION faultline.reconcile(
        max_jobs integer DEFAULT 100, dead_workers text[] DEFAULT '{}',
        lapsed_leases uuid[] DEFAULT '{}', queues text[] DEFAULT NULL)
    RETURNS TABLE (job_id uuid, fencing_token bigint, worker text, attempts integer, state text,
                   cause text)
    LANGUAGE plpgsql AS $$
    #variable_conflict use_column
    DECLARE
        expired uuid[] := ARRAY(SELECT j.id FROM faultline.jobs AS j
                                WHERE j.state = 'running' AND j.lease_expires_at <= clock_timestamp());
    BEGIN
        RETURN QUERY
            UPDATE faultline.jobs AS j
            SET state = 'queued', lease_owner = NULL, lease_expires_at = NULL
            WHERE j.id = ANY (expired)
            RETURNING j.id, j.fencing_token, 'unknown'::text, j.attempts, j.state, 'expired'::text;
    END $$
"""

# Reads the key first and inserts later, without a unique index.
CHECK_THEN_ENQUEUE = """
    DROP INDEX faultline.jobs_idempotency_key;
    CREATE OR REPLACE FUNCTION faultline.enqueue(
        task text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default',
        priority integer DEFAULT 5, run_at timestamptz DEFAULT NULL,
        idempotency_key text DEFAULT NULL, max_attempts integer DEFAULT 5,
        trace_context text DEFAULT NULL)
    RETURNS TABLE (job_id uuid, existing boolean)
    LANGUAGE plpgsql AS $$
    #variable_conflict use_column
    BEGIN
        RETURN QUERY SELECT j.id, true FROM faultline.jobs AS j
                     WHERE j.idempotency_key = enqueue.idempotency_key;
        IF NOT FOUND THEN
            RETURN QUERY
                INSERT INTO faultline.jobs (task, payload, queue, idempotency_key)
                VALUES (enqueue.task, enqueue.payload, enqueue.queue, enqueue.idempotency_key)
                RETURNING id, false;
        END IF;
    END $$
"""

# Tokens continue from the row's value, without an epoch.
NO_EPOCH = """
    CREATE OR REPLACE FUNCTION faultline.current_epoch() RETURNS bigint
    LANGUAGE sql AS $$ SELECT 0::bigint $$;
"""

# The fence compares the token without the lease id.
TOKEN_ALONE = """
    CREATE OR REPLACE FUNCTION faultline.fence_violation(
        job faultline.jobs, token bigint, lease uuid) RETURNS text
    LANGUAGE sql VOLATILE AS $$
        SELECT CASE
            WHEN job.id IS NULL THEN 'unknown_job'
            WHEN job.fencing_token IS DISTINCT FROM token THEN 'token_mismatch'
            WHEN job.state = 'succeeded' THEN 'already_committed'
            WHEN job.state <> 'running' THEN 'not_running'
            WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'
        END
    $$
"""
