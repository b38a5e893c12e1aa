-- Functions for operators: they act on jobs, on queues, and on keys of the HTTP API.
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

-- Safe because it changes failed jobs only, and the token continues from its last value: former holders stay stale. The job no
-- longer expires: the operator wants it to run, however late. A unique job takes its key again, before its row is locked
-- (unique.sql), and is refused while another job counts for the key.
CREATE OR REPLACE FUNCTION faultline.retry(job_id uuid) RETURNS text -- the state it is in now
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    other record;
    job   faultline.jobs;
BEGIN
    SELECT t.unique_key, t.holder INTO other FROM faultline.take_keys_again(ARRAY[retry.job_id], waits => true) AS t;
    job := faultline.lock_job(retry.job_id);
    IF other.holder IS NOT NULL AND job.state = 'failed' THEN
        RAISE EXCEPTION 'the unique key % is held by job %', quote_literal(other.unique_key), other.holder
            USING ERRCODE = 'FL011', DETAIL = json_build_object('job_id', other.holder)::text,
            HINT = 'Retry this one when that job no longer counts for the key; cancel or delete that job to decide it now.';
    ELSIF job.state = 'succeeded' THEN
        RAISE EXCEPTION 'job % has succeeded; running it again would repeat its effect', job.id
            USING ERRCODE = 'FL002', HINT = 'To repeat the effect on purpose, enqueue a new job.';
    ELSIF job.state = 'failed' THEN
        INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome)
        VALUES (job.id, job.attempts, job.fencing_token, 'retried');
        PERFORM set_config('faultline.verb', 'retry', true);
        UPDATE faultline.jobs SET state = 'queued', failed_reason = NULL, finished_at = NULL,
                                  attempts = 0, crashes = 0, next_run_at = clock_timestamp(), expires_at = NULL
        WHERE id = job.id;
        PERFORM set_config('faultline.verb', '', true);
        PERFORM faultline.wake(job.queue);
        PERFORM faultline.write_audit('retry', 'job ' || job.id, 'done', 'queued');
        RETURN 'queued';
    END IF;
    PERFORM faultline.write_audit('retry', 'job ' || job.id, 'unchanged', job.state);
    RETURN job.state;
END $$;

-- Deletes a job with its history, and frees its idempotency key. Safe because it waits for the row's lock, and deletes only a job
-- that is not running and has no ledger entry. A worker that still believes it holds the job is refused (unknown_job).
-- A running job is refused: cancel it first. A succeeded job is refused: while it exists its key keeps a producer that repeats its
-- request from causing the effect again, and how long that lasts is retention's decision (purge_jobs).
CREATE OR REPLACE FUNCTION faultline.delete(job_id uuid) RETURNS text -- the state it was in
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_job(delete.job_id);
BEGIN
    IF job.state NOT IN ('queued', 'failed') THEN
        RAISE EXCEPTION 'job % %; it cannot be deleted', job.id,
            CASE job.state WHEN 'running' THEN 'is running' ELSE 'has succeeded' END
            USING ERRCODE = 'FL002', HINT = CASE job.state WHEN 'running' THEN 'Cancel it first, then delete it.'
                ELSE 'Retention removes succeeded jobs: faultline purge --keep-succeeded-days DAYS' END;
    END IF;
    PERFORM faultline.remove_jobs(ARRAY[job.id]);
    PERFORM faultline.write_audit('delete', 'job ' || job.id, 'done', job.state, job.task);
    RETURN job.state;
END $$;

-- Replaces the payload of a queued or failed job; the former one stays in attempts_log. Safe because it waits for the row's lock:
-- a claim in flight is decided first, and a job that runs is refused, so no worker runs one payload while the row has another.
CREATE OR REPLACE FUNCTION faultline.edit_payload(job_id uuid, payload jsonb) RETURNS text -- the state it is in
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job faultline.jobs := faultline.lock_job(edit_payload.job_id);
BEGIN
    IF job.state NOT IN ('queued', 'failed') THEN
        RAISE EXCEPTION 'job % %; its payload cannot be changed', job.id,
            CASE job.state WHEN 'running' THEN 'is running' ELSE 'has succeeded' END
            USING ERRCODE = 'FL002', HINT = CASE job.state WHEN 'running' THEN 'Cancel it first, then edit and retry it.'
                                                           ELSE 'Enqueue a new job instead.' END;
    ELSIF job.payload::text = edit_payload.payload::text THEN -- as text: as jsonb 1 and 1.0 are equal
        PERFORM faultline.write_audit('edit', 'job ' || job.id, 'unchanged', job.state);
        RETURN job.state;
    END IF;
    UPDATE faultline.jobs SET payload = edit_payload.payload WHERE id = job.id;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, former_payload)
    VALUES (job.id, job.attempts, job.fencing_token, 'edited', job.payload);
    PERFORM faultline.write_audit('edit', 'job ' || job.id, 'done', job.state);
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

-- ── Many jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- Each function below acts on the jobs of `job_ids` that match the filter `wanted`, in one short transaction, and reports every
-- id. To act on all jobs that match, call it page by page:
--   SELECT * FROM faultline.retry_many(ARRAY(SELECT id FROM faultline.jobs WHERE state = 'failed' AND queue = 'billing' LIMIT 500));
-- It waits for no lock: a row that another session has locked is skipped and reported. It locks the others FOR UPDATE and checks
-- the filter and the state again under the lock, so a job that was claimed, retried or committed meanwhile is judged by what it
-- is now. The outcomes:
--   done       this call changed the job
--   unchanged  there was nothing to do in its state
--   refused    its state does not allow it; of retry_many also: another job holds its unique key; of edit_many also: the payload
--              would be too long
--   locked     another session holds its row
--   gone       it does not exist, or no longer matches `wanted`
-- Each call writes one row of the audit log, with the filter and the counts.

-- Whether a job matches a filter: a JSON object with any of the names that lock_jobs accepts. The class of an error is the text
-- before its first colon, as workers write it.
CREATE OR REPLACE FUNCTION faultline.matches(job faultline.jobs, wanted jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(job.state = wanted ->> 'state', NOT wanted ? 'state')
       AND coalesce(job.failed_reason = wanted ->> 'failed_reason', NOT wanted ? 'failed_reason')
       AND coalesce(job.queue = wanted ->> 'queue', NOT wanted ? 'queue')
       AND coalesce(job.task = wanted ->> 'task', NOT wanted ? 'task')
       AND coalesce(wanted ->> 'tag' = ANY (job.tags), NOT wanted ? 'tag')
       AND coalesce(split_part(job.last_error, ':', 1) = wanted ->> 'error', NOT wanted ? 'error')
       AND coalesce(job.created_at >= (wanted ->> 'created_after')::timestamptz, NOT wanted ? 'created_after')
       AND coalesce(job.created_at < (wanted ->> 'created_before')::timestamptz, NOT wanted ? 'created_before')
       AND coalesce(job.finished_at >= (wanted ->> 'finished_after')::timestamptz, NOT wanted ? 'finished_after')
       AND coalesce(job.finished_at < (wanted ->> 'finished_before')::timestamptz, NOT wanted ? 'finished_before')
$$;

-- Locks the jobs that match, in the order of their ids, so that two callers cannot deadlock, and returns the outcome of each id. A
-- name that it does not know is refused: a misspelt filter must not match every job. PostgreSQL evaluates the condition of the
-- first SELECT again on each row that it locks; the second one reads the rows under the locks.
CREATE OR REPLACE FUNCTION faultline.lock_jobs(job_ids uuid[], wanted jsonb, changed_states text[], refused_states text[])
RETURNS TABLE (job_id uuid, outcome text, state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    unknown text;
    held    uuid[];
BEGIN
    IF jsonb_typeof(wanted) IS DISTINCT FROM 'object' OR cardinality(job_ids) > 10000 THEN
        RAISE EXCEPTION 'cannot act on % jobs at once with the filter %', cardinality(job_ids), left(wanted::text, 100)
            USING ERRCODE = 'FL005', HINT = 'Give at most 10000 ids, and a JSON object as the filter.';
    END IF;
    SELECT k INTO unknown FROM jsonb_object_keys(wanted) AS k
    WHERE k <> ALL (ARRAY['state', 'failed_reason', 'queue', 'task', 'tag', 'error', 'created_after', 'created_before',
                          'finished_after', 'finished_before']) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a filter has no %', quote_literal(left(unknown, 100)) USING ERRCODE = 'FL005',
            HINT = 'It has state, failed_reason, queue, task, tag, error, and created_ and finished_ with after and before.';
    END IF;
    held := ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) AND faultline.matches(j, wanted)
                  ORDER BY j.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
        SELECT given.id,
               CASE WHEN h.id IS NOT NULL THEN CASE WHEN j.state = ANY (changed_states) THEN 'done'
                                                    WHEN j.state = ANY (refused_states) THEN 'refused' ELSE 'unchanged' END
                    WHEN j.id IS NULL OR NOT faultline.matches(j, wanted) THEN 'gone'
                    ELSE 'locked' END,
               j.state
        FROM (SELECT DISTINCT u.id FROM unnest(job_ids) AS u (id)) AS given
        LEFT JOIN faultline.jobs AS j ON j.id = given.id
        LEFT JOIN unnest(held) AS h (id) ON h.id = given.id
        ORDER BY given.id;
END $$;

CREATE OR REPLACE FUNCTION faultline.audit_many(action text, wanted jsonb, outcomes text[], reason text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    counts text := (SELECT string_agg(o.number || ' ' || o.outcome, ', ' ORDER BY o.outcome)
                    FROM (SELECT u.outcome, count(*) AS number FROM unnest(outcomes) AS u (outcome) GROUP BY u.outcome) AS o);
BEGIN
    IF cardinality(outcomes) > 0 THEN
        PERFORM faultline.write_audit(action, concat_ws(' ', 'jobs', nullif(wanted, '{}')),
                                      CASE WHEN 'done' = ANY (outcomes) THEN 'done' ELSE 'unchanged' END,
                                      detail => concat_ws(': ', counts, reason));
    END IF;
END $$;

-- Cancels queued and running jobs. Safe for the same reason as cancel; a commit in flight has locked its row, and wins.
CREATE OR REPLACE FUNCTION faultline.cancel_many(job_ids uuid[], reason text DEFAULT NULL, wanted jsonb DEFAULT '{}')
RETURNS TABLE (job_id uuid, outcome text, state text) -- state: the one in which it was found
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    ids      uuid[];
    outcomes text[];
    states   text[];
    done     uuid[];
BEGIN
    SELECT array_agg(o.job_id), array_agg(o.outcome), array_agg(o.state), array_agg(o.job_id) FILTER (WHERE o.outcome = 'done')
    INTO ids, outcomes, states, done
    FROM faultline.lock_jobs(job_ids, wanted, '{queued,running}', '{}') AS o;
    RETURN QUERY SELECT * FROM unnest(ids, outcomes, states);
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, worker, outcome, error, claimed_at)
    SELECT j.id, j.attempts, j.fencing_token, j.lease_owner, 'cancelled', left(reason, 10000),
           CASE WHEN j.state = 'running' THEN j.claimed_at END
    FROM faultline.jobs AS j WHERE j.id = ANY (done);
    UPDATE faultline.jobs
    SET state = 'failed', failed_reason = 'cancelled', finished_at = clock_timestamp(),
        last_error = coalesce(left(reason, 10000), last_error), lease_owner = NULL, lease_expires_at = NULL
    WHERE id = ANY (done);
    PERFORM faultline.audit_many('cancel', wanted, outcomes, reason);
END $$;

-- Queues failed jobs again with all their attempts. Safe for the same reason as retry: succeeded jobs are refused, and unique jobs
-- whose key another job holds. Of failed jobs with one key, the newest is retried.
CREATE OR REPLACE FUNCTION faultline.retry_many(job_ids uuid[], wanted jsonb DEFAULT '{}')
RETURNS TABLE (job_id uuid, outcome text, state text) -- state: the one in which it was found
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    ids      uuid[];
    outcomes text[];
    states   text[];
    done     uuid[];
    keyless  uuid[]; -- jobs that do not get their unique key
    verdicts text[];
BEGIN
    SELECT array_agg(t.job_id), array_agg(t.verdict) INTO keyless, verdicts
    FROM faultline.take_keys_again(job_ids, waits => false) AS t;
    SELECT array_agg(o.job_id), array_agg(o.outcome), array_agg(o.state), array_agg(o.job_id) FILTER (WHERE o.outcome = 'done')
    INTO ids, outcomes, states, done
    FROM (SELECT l.job_id, CASE WHEN l.outcome = 'done' THEN coalesce(v.verdict, 'done') ELSE l.outcome END AS outcome, l.state
          FROM faultline.lock_jobs(job_ids, wanted, '{failed}', '{succeeded}') AS l
          LEFT JOIN unnest(keyless, verdicts) AS v (job_id, verdict) ON v.job_id = l.job_id) AS o;
    RETURN QUERY SELECT * FROM unnest(ids, outcomes, states);
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome)
    SELECT j.id, j.attempts, j.fencing_token, 'retried' FROM faultline.jobs AS j WHERE j.id = ANY (done);
    PERFORM set_config('faultline.verb', 'retry', true);
    UPDATE faultline.jobs SET state = 'queued', failed_reason = NULL, finished_at = NULL,
                              attempts = 0, crashes = 0, next_run_at = clock_timestamp(), expires_at = NULL
    WHERE id = ANY (done);
    PERFORM set_config('faultline.verb', '', true);
    PERFORM faultline.wake(j.queue, count(*)) FROM faultline.jobs AS j WHERE j.id = ANY (done) GROUP BY j.queue;
    PERFORM faultline.audit_many('retry', wanted, outcomes);
END $$;

-- Deletes queued and failed jobs. Safe for the same reason as delete: running and succeeded jobs are refused.
CREATE OR REPLACE FUNCTION faultline.delete_many(job_ids uuid[], wanted jsonb DEFAULT '{}')
RETURNS TABLE (job_id uuid, outcome text, state text) -- state: the one in which it was found
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    ids      uuid[];
    outcomes text[];
    states   text[];
    done     uuid[];
BEGIN
    SELECT array_agg(o.job_id), array_agg(o.outcome), array_agg(o.state), array_agg(o.job_id) FILTER (WHERE o.outcome = 'done')
    INTO ids, outcomes, states, done
    FROM faultline.lock_jobs(job_ids, wanted, '{queued,failed}', '{running,succeeded}') AS o;
    RETURN QUERY SELECT * FROM unnest(ids, outcomes, states);
    PERFORM faultline.remove_jobs(done);
    PERFORM faultline.audit_many('delete', wanted, outcomes);
END $$;

-- Merges the fields of `changes` into the payloads of queued and failed jobs; the former ones stay in attempts_log. A value that is
-- an object or an array replaces the former value as a whole, and no field is removed. Safe for the same reason as edit_payload:
-- running and succeeded jobs are refused, and jobs whose payload would be longer than may be stored. The audit log has the names
-- of the fields, without their values.
CREATE OR REPLACE FUNCTION faultline.edit_many(job_ids uuid[], changes jsonb, wanted jsonb DEFAULT '{}')
RETURNS TABLE (job_id uuid, outcome text, state text) -- state: the one in which it was found
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    ids      uuid[];
    outcomes text[];
    states   text[];
    done     uuid[];
BEGIN
    IF jsonb_typeof(changes) IS DISTINCT FROM 'object' OR changes = '{}' THEN
        RAISE EXCEPTION 'the changes are not an object with fields' USING ERRCODE = 'FL005', HINT = '{"field": "the new value"}';
    END IF;
    SELECT array_agg(o.job_id), array_agg(o.outcome), array_agg(o.state) INTO ids, outcomes, states
    FROM faultline.lock_jobs(job_ids, wanted, '{queued,failed}', '{running,succeeded}') AS o;
    -- A second statement, because it must read the payloads under the locks.
    SELECT array_agg(o.outcome ORDER BY o.place), array_agg(o.job_id) FILTER (WHERE o.outcome = 'done') INTO outcomes, done
    FROM (SELECT g.job_id, g.place,
                 CASE WHEN j.id IS NULL THEN g.outcome
                      WHEN faultline.json_text_bound(j.payload || changes) > 8388608 THEN 'refused'
                      WHEN j.payload::text = (j.payload || changes)::text THEN 'unchanged' -- as text: as jsonb 1 and 1.0 are equal
                      ELSE 'done' END AS outcome
          FROM unnest(ids, outcomes) WITH ORDINALITY AS g (job_id, outcome, place)
          LEFT JOIN faultline.jobs AS j ON g.outcome = 'done' AND j.id = g.job_id) AS o;
    RETURN QUERY SELECT * FROM unnest(ids, outcomes, states);
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, former_payload)
    SELECT j.id, j.attempts, j.fencing_token, 'edited', j.payload FROM faultline.jobs AS j WHERE j.id = ANY (done);
    UPDATE faultline.jobs SET payload = payload || changes WHERE id = ANY (done);
    PERFORM faultline.audit_many('edit', wanted, outcomes,
                                 (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(changes) AS k));
END $$;

-- Deletes jobs whose rows the caller has locked, and their history. A claim that makes a deferred job due again locks its row in
-- deferred_jobs before the job's: that row is skipped here, because waiting for it would deadlock, and the claim deletes it.
CREATE OR REPLACE FUNCTION faultline.remove_jobs(job_ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    DELETE FROM faultline.attempts_log AS a WHERE a.job_id = ANY (remove_jobs.job_ids);
    DELETE FROM faultline.rejections AS r WHERE r.job_id = ANY (remove_jobs.job_ids);
    DELETE FROM faultline.unique_jobs AS u WHERE u.job_id = ANY (remove_jobs.job_ids); -- this frees the unique key
    DELETE FROM faultline.deferred_jobs AS d WHERE d.job_id = ANY (ARRAY(
        SELECT o.job_id FROM faultline.deferred_jobs AS o WHERE o.job_id = ANY (remove_jobs.job_ids) FOR UPDATE SKIP LOCKED));
    DELETE FROM faultline.job_progress AS p WHERE p.job_id = ANY (remove_jobs.job_ids);
    DELETE FROM faultline.jobs AS j WHERE j.id = ANY (remove_jobs.job_ids);
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
    PERFORM faultline.broadcast(resume_queue.queue);
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
