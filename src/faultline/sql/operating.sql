-- Functions for operators: cancel and retry jobs, pause and resume queues, create and revoke keys of the HTTP API.
-- Each writes its row of the audit log with write_audit (audit.sql).

-- ── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Safe because it waits for the row's lock: a commit in flight is decided first, and its result stands.
CREATE OR REPLACE FUNCTION faultline.cancel(job_id uuid, reason text DEFAULT NULL) RETURNS text -- the state it is in now
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_job(cancel.job_id);
BEGIN
    IF job.state NOT IN ('queued', 'running') THEN
        PERFORM faultline.write_audit('cancel', 'job ' || job.id, 'unchanged', job.state, reason);
        RETURN job.state;
    END IF;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    VALUES (job.id, job.attempts, job.fencing_token, job.lease_owner, 'cancelled', left(reason, 10000),
            CASE WHEN job.state = 'running' THEN job.claimed_at END);
    UPDATE faultline.jobs
    SET state = 'failed', failed_reason = 'cancelled', finished_at = clock_timestamp(),
        last_error = coalesce(left(reason, 10000), last_error), lease_owner = NULL, lease_expires_at = NULL
    WHERE id = job.id;
    PERFORM faultline.write_audit('cancel', 'job ' || job.id, 'done', 'failed', reason);
    RETURN 'failed';
END $$;

-- Safe because it changes failed jobs only, and the token continues from its last value: former holders stay stale.
CREATE OR REPLACE FUNCTION faultline.retry(job_id uuid) RETURNS text -- the state it is in now
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_job(retry.job_id);
BEGIN
    IF job.state = 'succeeded' THEN
        RAISE EXCEPTION 'job % has succeeded; running it again would repeat its effect', job.id
            USING ERRCODE = 'FL002', HINT = 'To repeat the effect on purpose, enqueue a new job.';
    ELSIF job.state = 'failed' THEN
        INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome)
        VALUES (job.id, job.attempts, job.fencing_token, 'retried');
        PERFORM set_config('faultline.verb', 'retry', true);
        UPDATE faultline.jobs SET state = 'queued', failed_reason = NULL, finished_at = NULL,
                                  attempts = 0, crashes = 0, next_run_at = clock_timestamp()
        WHERE id = job.id;
        PERFORM set_config('faultline.verb', '', true);
        PERFORM faultline.wake(job.queue);
        PERFORM faultline.write_audit('retry', 'job ' || job.id, 'done', 'queued');
        RETURN 'queued';
    END IF;
    PERFORM faultline.write_audit('retry', 'job ' || job.id, 'unchanged', job.state);
    RETURN job.state;
END $$;

CREATE OR REPLACE FUNCTION faultline.lock_job(job_id uuid) RETURNS faultline.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job faultline.jobs;
BEGIN
    SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', lock_job.job_id USING ERRCODE = 'FL006', HINT = 'List the jobs: faultline jobs list';
    END IF;
    RETURN job;
END $$;

-- ── Queues ─────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Safe at any time: only claims read this table. Running jobs continue, and commit.
CREATE OR REPLACE FUNCTION faultline.pause_queue(queue text, reason text DEFAULT NULL) RETURNS boolean -- false: it was paused already
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ran boolean;
BEGIN
    INSERT INTO faultline.paused_queues (queue, reason) VALUES (pause_queue.queue, left(pause_queue.reason, 1000))
    ON CONFLICT DO NOTHING;
    ran := FOUND;
    PERFORM faultline.write_audit('pause', 'queue ' || pause_queue.queue, CASE WHEN ran THEN 'done' ELSE 'unchanged' END,
                                  detail => pause_queue.reason);
    RETURN ran;
END $$;

CREATE OR REPLACE FUNCTION faultline.resume_queue(queue text) RETURNS boolean -- whether it was paused
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM faultline.paused_queues AS z WHERE z.queue = resume_queue.queue;
    IF NOT FOUND THEN
        PERFORM faultline.write_audit('resume', 'queue ' || resume_queue.queue, 'unchanged');
        RETURN false;
    END IF;
    PERFORM faultline.write_audit('resume', 'queue ' || resume_queue.queue, 'done');
    PERFORM faultline.wake(resume_queue.queue);
    RETURN true;
END $$;

-- ── Keys of the HTTP API ───────────────────────────────────────────────────────────────────────────────────────────

-- An account cannot give a key a scope that it lacks itself: otherwise an operator, who may not enqueue, could do so by a key.
CREATE OR REPLACE FUNCTION faultline.create_api_key(name text, prefix text, key_hash bytea, scopes text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made          bigint;
    missing_scope text := CASE
        WHEN 'enqueue' = ANY (scopes) AND NOT has_function_privilege(session_user,
            'faultline.enqueue(text, jsonb, text, integer, timestamptz, text, integer, text)', 'EXECUTE') THEN 'enqueue'
        WHEN 'read' = ANY (scopes) AND NOT has_table_privilege(session_user, 'faultline.jobs', 'SELECT') THEN 'read'
        WHEN 'operate' = ANY (scopes) AND NOT has_function_privilege(session_user, 'faultline.cancel(uuid, text)', 'EXECUTE')
            THEN 'operate' END;
BEGIN
    IF missing_scope IS NOT NULL THEN
        RAISE EXCEPTION 'account % may not make a key with the scope %, which it does not have itself',
            quote_ident(session_user), missing_scope USING ERRCODE = 'insufficient_privilege',
            HINT = 'Use an account that has this right too; for the scope enqueue, a member of faultline_producer.';
    END IF;
    INSERT INTO faultline.api_keys (name, prefix, key_hash, scopes)
    VALUES (create_api_key.name, create_api_key.prefix, create_api_key.key_hash, create_api_key.scopes) RETURNING id INTO made;
    PERFORM faultline.write_audit('create key', 'key flk_' || create_api_key.prefix, 'done',
                                  detail => create_api_key.name || ': ' || array_to_string(create_api_key.scopes, ', '));
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION faultline.revoke_api_key(id bigint) RETURNS boolean -- false: it was revoked already, or never existed
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was_valid boolean;
BEGIN
    UPDATE faultline.api_keys AS k SET revoked_at = clock_timestamp() WHERE k.id = revoke_api_key.id AND k.revoked_at IS NULL;
    was_valid := FOUND;
    PERFORM faultline.write_audit('revoke key', coalesce((SELECT 'key flk_' || k.prefix FROM faultline.api_keys AS k
                                                          WHERE k.id = revoke_api_key.id), 'key ' || revoke_api_key.id),
                                  CASE WHEN was_valid THEN 'done' ELSE 'unchanged' END);
    RETURN was_valid;
END $$;

-- Records when a key was used, to the minute, so that a busy key does not cause a write for every request.
CREATE OR REPLACE FUNCTION faultline.touch_api_key(id bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE faultline.api_keys AS k SET last_used_at = clock_timestamp()
    WHERE k.id = touch_api_key.id AND (k.last_used_at < clock_timestamp() - interval '1 minute') IS NOT FALSE
$$;
