-- Retention: purges finished jobs, ledger entries and rows of the audit log.
-- Each call is one short transaction that reads at most batch_size rows, waits for no lock, and returns where the next call
-- continues.

-- The smallest id of a job created at this moment. Ids begin with the time, so the primary key is an index on the time of
-- creation: retention needs no other index, and commits have none to maintain. (A job that was inserted under another kind of
-- id is purged if that id sorts among the old ones, or never.)
CREATE OR REPLACE FUNCTION faultline.first_id_at(moment timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM greatest(moment, 'epoch')) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- The moment before which rows are purged; null for never. Rows are kept for at least an hour: a worker that lost the answer to
-- its commit must find the entry in the ledger. The moment is compared, not the interval (see seconds_from_now in intervals.sql).
CREATE OR REPLACE FUNCTION faultline.removed_before(kept interval, batch_size integer) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    oldest timestamptz;
BEGIN
    IF faultline.seconds_from_now(kept) <> 'infinity' THEN
        oldest := moment - kept;
    END IF;
    IF (batch_size BETWEEN 1 AND 10000) IS NOT TRUE OR oldest > moment - interval '3600 seconds'
       OR (oldest IS NULL AND kept < interval '1 hour') THEN
        RAISE EXCEPTION 'cannot purge % rows at a time that are kept for %', batch_size, kept USING ERRCODE = 'FL005',
            HINT = 'batch_size is 1 to 10000; rows are kept for an hour at least, or for ever with NULL.';
    END IF;
    RETURN oldest;
END $$;

-- Purges finished jobs. Safe because it locks them and checks again under the lock, so a job that is retried meanwhile stays. A
-- job that had ended by a moment was created before it, so the walk over the primary key stops there. The job's attempts and
-- rejections are deleted with it; its ledger entry stays, for purge_ledger. Its idempotency key can be used again.
CREATE OR REPLACE FUNCTION faultline.purge_jobs(
    keep_succeeded interval, keep_failed interval, after_id uuid DEFAULT NULL, batch_size integer DEFAULT 500,
    dry_run boolean DEFAULT false)
RETURNS TABLE (succeeded integer, failed integer, last_id uuid) -- last_id: where to continue; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    old_success timestamptz := faultline.removed_before(keep_succeeded, batch_size);
    old_failure timestamptz := faultline.removed_before(keep_failed, batch_size);
    first_kept  uuid := faultline.first_id_at(greatest(old_success, old_failure));
    page        uuid[];
BEGIN
    page := ARRAY(SELECT j.id FROM faultline.jobs AS j
                  WHERE j.id > coalesce(after_id, '00000000-0000-0000-0000-000000000000') AND j.id < first_kept
                  ORDER BY j.id LIMIT batch_size);
    last_id := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    IF NOT dry_run THEN
        page := ARRAY(SELECT j.id FROM faultline.jobs AS j
                      WHERE j.id = ANY (page)
                        AND j.finished_at < CASE j.state WHEN 'succeeded' THEN old_success WHEN 'failed' THEN old_failure END
                      ORDER BY j.id FOR UPDATE SKIP LOCKED);
    END IF;
    SELECT count(*) FILTER (WHERE j.state = 'succeeded'), count(*) FILTER (WHERE j.state = 'failed')
    INTO succeeded, failed
    FROM faultline.jobs AS j
    WHERE j.id = ANY (page)
      AND j.finished_at < CASE j.state WHEN 'succeeded' THEN old_success WHEN 'failed' THEN old_failure END;
    IF NOT dry_run AND cardinality(page) > 0 THEN
        DELETE FROM faultline.attempts_log AS a WHERE a.job_id = ANY (page);
        DELETE FROM faultline.rejections AS r WHERE r.job_id = ANY (page);
        DELETE FROM faultline.deferred_jobs AS d WHERE d.job_id = ANY (page);
        DELETE FROM faultline.job_progress AS p WHERE p.job_id = ANY (page);
        DELETE FROM faultline.unique_jobs AS u WHERE u.job_id = ANY (page);
        DELETE FROM faultline.jobs AS j WHERE j.id = ANY (page);
        PERFORM faultline.audit_purge('jobs', cardinality(page));
    END IF;
    RETURN NEXT;
END $$;

-- Purges ledger entries of purged jobs. Safe because an entry stays while its job exists: without it a succeeded job would look
-- as if it never took effect. A late commit for a purged job is refused without the entry too (unknown_job). Rejections that
-- were recorded after their job was purged are deleted here.
CREATE OR REPLACE FUNCTION faultline.purge_ledger(
    keep interval, after_id uuid DEFAULT NULL, batch_size integer DEFAULT 500, dry_run boolean DEFAULT false)
RETURNS TABLE (entries integer, last_id uuid) -- last_id: where to continue; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    oldest     timestamptz := faultline.removed_before(keep, batch_size);
    first_kept uuid := faultline.first_id_at(oldest);
    page       uuid[];
BEGIN
    page := ARRAY(SELECT l.job_id FROM faultline.ledger AS l
                  WHERE l.job_id > coalesce(after_id, '00000000-0000-0000-0000-000000000000') AND l.job_id < first_kept
                  ORDER BY l.job_id LIMIT batch_size);
    last_id := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    page := ARRAY(SELECT l.job_id FROM faultline.ledger AS l
                  WHERE l.job_id = ANY (page) AND l.committed_at < oldest
                    AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = l.job_id));
    IF dry_run THEN
        entries := cardinality(page);
    ELSE
        PERFORM set_config('faultline.verb', 'retention', true);
        DELETE FROM faultline.ledger AS l WHERE l.job_id = ANY (ARRAY(
            SELECT o.job_id FROM faultline.ledger AS o WHERE o.job_id = ANY (page)
            ORDER BY o.job_id FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS entries = ROW_COUNT;
        PERFORM set_config('faultline.verb', '', true);
        PERFORM faultline.audit_purge('ledger', entries);
        DELETE FROM faultline.rejections AS r WHERE r.id = ANY (ARRAY(
            SELECT o.id FROM faultline.rejections AS o
            WHERE o.job_id < first_kept AND o.rejected_at < oldest
              AND NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = o.job_id)
            ORDER BY o.job_id LIMIT batch_size FOR UPDATE SKIP LOCKED));
    END IF;
    RETURN NEXT;
END $$;

-- Purges the oldest rows of the audit log, in the order of their ids.
CREATE OR REPLACE FUNCTION faultline.purge_audit(
    keep interval, after_id bigint DEFAULT NULL, batch_size integer DEFAULT 500, dry_run boolean DEFAULT false)
RETURNS TABLE (entries integer, last_id bigint) -- last_id: where to continue; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    oldest timestamptz := faultline.removed_before(keep, batch_size);
    page   bigint[];
BEGIN
    page := ARRAY(SELECT a.id FROM faultline.audit_log AS a WHERE a.id > coalesce(after_id, 0)
                  ORDER BY a.id LIMIT batch_size);
    last_id := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    page := ARRAY(SELECT a.id FROM faultline.audit_log AS a WHERE a.id = ANY (page) AND a.at < oldest ORDER BY a.id);
    IF cardinality(page) < batch_size THEN
        last_id := NULL; -- later ids are newer, and kept
    END IF;
    entries := cardinality(page);
    IF NOT dry_run AND entries > 0 THEN
        PERFORM set_config('faultline.verb', 'retention', true);
        DELETE FROM faultline.audit_log AS a WHERE a.id = ANY (ARRAY(
            SELECT o.id FROM faultline.audit_log AS o WHERE o.id = ANY (page) ORDER BY o.id FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS entries = ROW_COUNT;
        PERFORM set_config('faultline.verb', '', true);
    END IF;
    RETURN NEXT;
END $$;

-- Writes an operator's purge to the audit log. The leading reconciler purges all the time, and sets its own actor: retention.
CREATE OR REPLACE FUNCTION faultline.audit_purge(what text, removed bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF removed > 0 AND coalesce(current_setting('faultline.actor', true), '') <> '{"kind": "retention"}' THEN
        PERFORM faultline.write_audit('purge', what, 'done', detail => removed || ' removed');
    END IF;
END $$;
