-- Progress: how far running jobs are, as their handlers report it. In a table of its own, so that a report does not write the
-- job's row anew, and a job without reports costs nothing.

-- Records reports of many jobs in one statement, and returns the jobs whose reports were recorded. Safe because it locks each
-- job's row before it checks the fence, and keeps it locked: no worker can claim the job meanwhile, so no older token's report comes
-- after a newer one's. It waits for no lock that a handler holds for long: FOR KEY SHARE goes together with renewals and with the
-- lock of a fenced step, and a row that is locked otherwise is skipped, because its attempt is just ending. Refusals are no error:
-- progress is not an effect, and the caller's next commit is refused anyway.
CREATE OR REPLACE FUNCTION faultline.report_progress(
    job_ids uuid[], fencing_tokens bigint[], lease_ids uuid[], fractions real[], messages text[])
RETURNS TABLE (job_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    locked_here uuid[] := ARRAY(SELECT j.id FROM faultline.jobs AS j WHERE j.id = ANY (job_ids)
                                ORDER BY j.id FOR KEY SHARE SKIP LOCKED);
BEGIN
    RETURN QUERY
        INSERT INTO faultline.job_progress AS p (job_id, fencing_token, fraction, message)
        SELECT DISTINCT ON (j.id) j.id, mine.token, mine.fraction, left(mine.message, 500)
        FROM unnest(job_ids, fencing_tokens, lease_ids, fractions, messages)
             WITH ORDINALITY AS mine (job_id, token, lease_id, fraction, message, ordinal)
        JOIN faultline.jobs AS j ON j.id = mine.job_id AND j.id = ANY (locked_here)
        WHERE faultline.fence_violation(j, mine.token, mine.lease_id) IS NULL
        ORDER BY j.id, mine.ordinal DESC
        ON CONFLICT (job_id) DO UPDATE
        SET fencing_token = excluded.fencing_token, fraction = excluded.fraction, message = excluded.message,
            reported_at = clock_timestamp()
        WHERE p.fencing_token <= excluded.fencing_token -- a second guard: the lock above has decided
        RETURNING p.job_id;
END $$;
