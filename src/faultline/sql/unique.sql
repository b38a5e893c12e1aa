-- Unique jobs: of the jobs with one unique key, at most one counts.
--
-- A job counts for its key while it waits for its first claim (while_ = 'queued') or until it ends ('unfinished'), and at least
-- until held_until. A job that was claimed once never waits for its first claim again: its token stays above 0. An enqueue whose
-- key is held by a job that counts inserts nothing; it is kept, or changes the job that waits. Two invariants:
--   1. The row of unique_keys is the lock of a key. What makes a job count for a key, an enqueue or an operator's retry, holds
--      that row first. Claims and commits never read it: they can only end that a job counts.
--   2. Locks are taken in one order: unique keys, sorted; then jobs that wait, sorted; then idempotency keys, sorted. One call
--      sorts all its keys, so that bulk enqueues cannot deadlock. Nothing waits for a key while it locks a job.
-- A transaction holds the keys that it has used until it ends: other producers of the same key wait for it.

-- Whether a job counts for its unique key.
CREATE OR REPLACE FUNCTION faultline.counts_for_key(mine faultline.unique_jobs, job faultline.jobs) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(job.id IS NOT NULL
                    AND (mine.held_until > clock_timestamp() OR job.state = 'queued' AND job.fencing_token = 0
                         OR mine.while_ = 'unfinished' AND job.state IN ('queued', 'running')), false)
$$;

-- ── The key ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The same value with each number in its shortest form: 1.0 and 1 are one key. jsonb sorts names and ignores white space.
CREATE OR REPLACE FUNCTION faultline.canonical_json(value jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE jsonb_typeof(value)
        WHEN 'number' THEN RETURN to_jsonb(trim_scale(value::numeric));
        WHEN 'array' THEN
            RETURN (SELECT coalesce(jsonb_agg(faultline.canonical_json(e.item) ORDER BY e.ordinal), '[]')
                    FROM jsonb_array_elements(value) WITH ORDINALITY AS e (item, ordinal));
        WHEN 'object' THEN
            RETURN (SELECT coalesce(jsonb_object_agg(e.name, faultline.canonical_json(e.item)), '{}')
                    FROM jsonb_each(value) AS e (name, item));
        ELSE RETURN value;
    END CASE;
END $$;

-- The unique key of a job: its task, and the arguments in `by` as JSON; no name means all arguments. A key of more than 1000 bytes
-- ends in a hash instead. The domain of the payload refuses a text that is too long to build.
CREATE OR REPLACE FUNCTION faultline.unique_key(task text, payload faultline.payload, by jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    arguments text := payload::text;
BEGIN
    IF jsonb_array_length(by) > 0 THEN
        arguments := (SELECT jsonb_object_agg(e.name, e.item) FROM jsonb_each(payload) AS e (name, item) WHERE by ? e.name);
    END IF;
    IF position('.' IN arguments) > 0 THEN -- only such a number has two forms
        arguments := faultline.canonical_json(arguments::jsonb);
    END IF;
    RETURN task || ' ' || CASE WHEN octet_length(arguments) <= 1000 THEN arguments
                               ELSE 'sha256:' || encode(sha256(convert_to(arguments, 'UTF8')), 'hex') END;
END $$;

-- Refuses a member "unique" that cannot be meant. A name in `by` must be an argument of the job: a misspelt one would make all jobs
-- of the task equal, and all but one would be lost.
CREATE OR REPLACE FUNCTION faultline.check_unique(jobs jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    SELECT format('job %s: %s', c.ordinal - 1, c.problem) INTO problem
    FROM (SELECT g.ordinal, CASE
              WHEN jsonb_typeof(u.it) <> 'object' THEN 'unique is not an object'
              WHEN u.it - '{by,defaults,while,on_conflict,for}'::text[] <> '{}'
                  THEN format('unique has no %I', (SELECT n FROM jsonb_object_keys(u.it - '{by,defaults,while,on_conflict,for}'::text[]) AS n LIMIT 1))
              WHEN coalesce(jsonb_typeof(u.it -> 'by'), 'array') <> 'array' THEN 'unique.by is not a list of names'
              WHEN coalesce(jsonb_typeof(u.it -> 'defaults'), 'object') <> 'object' THEN 'unique.defaults is not an object'
              WHEN u.missing IS NOT NULL THEN format('unique.by names %s, which is not in its payload', u.missing)
              WHEN coalesce(u.it ->> 'while', 'unfinished') NOT IN ('queued', 'unfinished')
                  THEN 'unique.while is queued or unfinished'
              WHEN coalesce(u.it ->> 'on_conflict', 'keep') NOT IN ('keep', 'replace', 'reschedule')
                  THEN 'unique.on_conflict is keep, replace or reschedule'
              WHEN u.it ? 'for' AND (jsonb_typeof(u.it -> 'for') <> 'number'
                                     OR ((u.it ->> 'for')::double precision BETWEEN 0.001 AND 31536000) IS NOT TRUE)
                  THEN 'unique.for is more than 0 and at most 31536000 seconds' END AS problem
          FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
          CROSS JOIN LATERAL (
              SELECT g.job -> 'unique' AS it,
                     (SELECT b.name FROM jsonb_array_elements(CASE WHEN jsonb_typeof(g.job #> '{unique,by}') = 'array'
                                                                   THEN g.job #> '{unique,by}' ELSE '[]' END) AS b (name)
                      WHERE NOT coalesce(g.job -> 'payload' ? (b.name #>> '{}') OR g.job #> '{unique,defaults}' ? (b.name #>> '{}'), false)
                      LIMIT 1) AS missing) AS u
          WHERE u.it IS NOT NULL) AS c
    WHERE c.problem IS NOT NULL ORDER BY c.ordinal LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL005',
            HINT = 'For example {"by": ["customer_id"], "while": "queued", "on_conflict": "replace", "for": 3600}.';
    END IF;
END $$;

-- ── Enqueue ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Enqueues jobs of which some are unique, for enqueue_jobs. Safe because it locks all keys before it judges them, and reads each
-- holder's job afterwards. A job whose idempotency key has a job already is judged by that key alone.
CREATE OR REPLACE FUNCTION faultline.enqueue_unique(jobs jsonb, ids uuid[], moment timestamptz, trace_context text)
RETURNS TABLE (job_id uuid, existing boolean, outcome text) -- in the order of the jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    all_keys  text[];    -- of each job; null if it is not unique
    keys      text[];    -- the same without those of jobs that have an existing idempotency key
    conflicts text[];    -- what each job does on a conflict
    holders   uuid[];    -- of each key: the job itself, or the job that was there
    answers   uuid[];    -- of the jobs that hold no other's key: their ids, or those of existing idempotency keys
    changed   uuid[];    -- holders that were replaced or rescheduled
BEGIN
    PERFORM faultline.check_unique(jobs);
    SELECT array_agg(CASE WHEN g.job ? 'unique' THEN faultline.unique_key(g.job ->> 'task',
                              coalesce(g.job #> '{unique,defaults}', '{}') || coalesce(g.job -> 'payload', '{}'),
                              coalesce(g.job #> '{unique,by}', '[]')) END ORDER BY g.ordinal),
           array_agg(coalesce(g.job #>> '{unique,on_conflict}', 'keep') ORDER BY g.ordinal)
    INTO all_keys, conflicts FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal);
    PERFORM faultline.lock_unique_keys(all_keys, ids);
    keys := ARRAY(SELECT CASE WHEN NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.idempotency_key = g.job ->> 'idempotency_key')
                              THEN k.key END
                  FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
                  JOIN unnest(all_keys) WITH ORDINALITY AS k (key, ordinal) ON k.ordinal = g.ordinal ORDER BY g.ordinal);
    PERFORM faultline.lock_waiting_holders(keys, conflicts);
    PERFORM faultline.take_free_keys(keys, ids);
    holders := ARRAY(SELECT k.job_id FROM unnest(keys) WITH ORDINALITY AS g (key, ordinal)
                     LEFT JOIN faultline.unique_keys AS k ON k.unique_key = g.key ORDER BY g.ordinal);
    answers := faultline.insert_unheld(jobs, ids, holders, moment, trace_context);
    INSERT INTO faultline.unique_jobs (job_id, unique_key, while_, held_until)
    SELECT m.id, m.key, coalesce(g.job #>> '{unique,while}', 'unfinished'),
           moment + make_interval(secs => (g.job #>> '{unique,for}')::double precision)
    FROM unnest(ids, keys, answers) WITH ORDINALITY AS m (id, key, answer, ordinal)
    JOIN jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal) ON g.ordinal = m.ordinal
    WHERE m.key IS NOT NULL AND m.answer = m.id;
    -- The keys of jobs that were not inserted, because their idempotency key has a job, are free again.
    DELETE FROM faultline.unique_keys AS k
    USING unnest(ids) AS m (id)
    WHERE k.job_id = m.id AND k.unique_key = ANY (all_keys) AND NOT EXISTS (SELECT FROM faultline.unique_jobs AS u WHERE u.job_id = m.id);
    changed := faultline.change_holders(jobs, ids, holders, conflicts, moment);
    RETURN QUERY
        SELECT coalesce(m.answer, creator.answer, m.holder), m.answer IS DISTINCT FROM m.id,
               CASE WHEN m.answer = m.id THEN 'queued'
                    WHEN m.answer IS NOT NULL THEN 'existing'
                    WHEN m.holder = ANY (changed) AND m.on_conflict <> 'keep' THEN m.on_conflict || 'd'
                    ELSE 'kept' END
        FROM unnest(ids, holders, answers, conflicts) WITH ORDINALITY AS m (id, holder, answer, on_conflict, ordinal)
        LEFT JOIN unnest(ids, answers) AS creator (id, answer) ON creator.id = m.holder
        ORDER BY m.ordinal;
END $$;

-- Locks these keys, in their order, and makes rows for those that have none. DO UPDATE locks the newest version of a row even
-- though its condition never allows the change, so that a conflict writes nothing. The mode is FOR NO KEY UPDATE: it excludes
-- every other caller of this function.
CREATE OR REPLACE FUNCTION faultline.lock_unique_keys(keys text[], ids uuid[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO faultline.unique_keys AS k (unique_key, job_id)
    SELECT DISTINCT ON (g.key) g.key, g.id
    FROM unnest(keys, ids) WITH ORDINALITY AS g (key, id, ordinal) WHERE g.key IS NOT NULL
    ORDER BY g.key, g.ordinal
    ON CONFLICT (unique_key) DO UPDATE SET job_id = excluded.job_id WHERE false
$$;

-- Locks the holders of these keys that wait for their first claim, so that none is claimed before this transaction ends: a job
-- that is kept, replaced or rescheduled starts after the commit of the enqueue, and sees what it wrote.
--   · A job that was claimed is not locked: it never waits again, and its handler may hold its row for long. A first look without
--     a lock finds this out. Only a claim, a cancel or a delete in progress makes the lock wait, and these are short.
--   · The mode for a kept job is FOR KEY SHARE, for others FOR NO KEY UPDATE. Claims lock FOR UPDATE and skip both.
--   · If a job was claimed between the look and the lock, the lock must not stay: it would stop the job's commit until this
--     transaction ends. The subtransaction drops it, and the next look finds the job claimed. A retry needs the key, which is
--     locked here, so each holder stops waiting at most once, and the loop ends.
CREATE OR REPLACE FUNCTION faultline.lock_waiting_holders(keys text[], conflicts text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    waiting  uuid[];
    changing uuid[];
BEGIN
    FOR look IN 0..cardinality(keys) LOOP
        SELECT array_agg(DISTINCT j.id), array_agg(DISTINCT j.id) FILTER (WHERE g.on_conflict <> 'keep')
        INTO waiting, changing
        FROM unnest(keys, conflicts) AS g (key, on_conflict)
        JOIN faultline.unique_keys AS k ON k.unique_key = g.key
        JOIN faultline.jobs AS j ON j.id = k.job_id
        WHERE j.state = 'queued' AND j.fencing_token = 0;
        IF waiting IS NULL THEN
            RETURN;
        END IF;
        BEGIN
            PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (changing) ORDER BY j.id FOR NO KEY UPDATE;
            PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (waiting) ORDER BY j.id FOR KEY SHARE;
            IF cardinality(waiting) = (SELECT count(*) FROM faultline.jobs AS j
                                       WHERE j.id = ANY (waiting) AND j.state = 'queued' AND j.fencing_token = 0) THEN
                RETURN;
            END IF;
            RAISE EXCEPTION 'a job was claimed'; -- to drop the locks
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END $$;

-- Gives each locked key whose holder does not count to the first job that wants it.
CREATE OR REPLACE FUNCTION faultline.take_free_keys(keys text[], ids uuid[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE faultline.unique_keys AS k SET job_id = f.id
    FROM (SELECT DISTINCT ON (g.key) g.key, g.id
          FROM unnest(keys, ids) WITH ORDINALITY AS g (key, id, ordinal) WHERE g.key IS NOT NULL
          ORDER BY g.key, g.ordinal) AS f
    WHERE k.unique_key = f.key AND k.job_id <> f.id
      AND NOT EXISTS (SELECT FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
                      WHERE u.job_id = k.job_id AND faultline.counts_for_key(u, j))
$$;

-- Inserts the jobs that hold their key or have none, and returns the id of each; null for a job whose key another one holds.
CREATE OR REPLACE FUNCTION faultline.insert_unheld(jobs jsonb, ids uuid[], holders uuid[], moment timestamptz, trace_context text)
RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    some_jobs jsonb;
    some_ids  uuid[];
    answers   uuid[];
BEGIN
    SELECT jsonb_agg(g.job ORDER BY g.ordinal), array_agg(m.id ORDER BY g.ordinal) INTO some_jobs, some_ids
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal)
    JOIN unnest(ids, holders) WITH ORDINALITY AS m (id, holder, ordinal) ON m.ordinal = g.ordinal
    WHERE m.holder IS NULL OR m.holder = m.id;
    IF some_ids IS NOT NULL THEN
        answers := ARRAY(SELECT i.job_id FROM faultline.insert_jobs(some_jobs, some_ids, moment, trace_context) AS i);
    END IF;
    RETURN ARRAY(SELECT a.answer FROM unnest(ids) WITH ORDINALITY AS m (id, ordinal)
                 LEFT JOIN unnest(some_ids, answers) AS a (id, answer) ON a.id = m.id ORDER BY m.ordinal);
END $$;

-- Gives holders that wait for their first claim the payload of the last job that replaces it, and the time and the expiry of the
-- last that reschedules it. Returns the holders that wait; the caller has locked them. A holder that runs or has ended stays as
-- it is. attempts_log gets the first ten former payloads of a job: a producer may replace one a thousand times a second.
CREATE OR REPLACE FUNCTION faultline.change_holders(jobs jsonb, ids uuid[], holders uuid[], conflicts text[], moment timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    waiting uuid[] := ARRAY(
        SELECT j.id FROM faultline.jobs AS j
        WHERE j.id = ANY (ARRAY(SELECT m.holder FROM unnest(ids, holders, conflicts) AS m (id, holder, on_conflict)
                                WHERE m.holder <> m.id AND m.on_conflict <> 'keep'))
          AND j.state = 'queued' AND j.fencing_token = 0);
    due_queues  text[];
    rescheduled uuid[];
BEGIN
    IF cardinality(waiting) = 0 THEN
        RETURN waiting;
    END IF;
    WITH late AS MATERIALIZED (
        SELECT m.holder, m.on_conflict, g.job, m.ordinal
        FROM unnest(ids, holders, conflicts) WITH ORDINALITY AS m (id, holder, on_conflict, ordinal)
        JOIN jsonb_array_elements(jobs) WITH ORDINALITY AS g (job, ordinal) ON g.ordinal = m.ordinal
        WHERE m.holder = ANY (waiting) AND m.holder <> m.id),
    replacing AS (
        SELECT DISTINCT ON (l.holder) l.holder, coalesce(l.job -> 'payload', '{}') AS payload
        FROM late AS l WHERE l.on_conflict = 'replace' ORDER BY l.holder, l.ordinal DESC),
    moving AS (
        SELECT DISTINCT ON (l.holder) l.holder, faultline.start_of(l.job, moment) AS next_run_at,
               faultline.expiry_of(l.job, moment) AS expires_at
        FROM late AS l WHERE l.on_conflict = 'reschedule' ORDER BY l.holder, l.ordinal DESC),
    counted AS (
        UPDATE faultline.unique_jobs AS u
        SET replaced = u.replaced + c.replaced, rescheduled = u.rescheduled + c.rescheduled, changed_at = clock_timestamp()
        FROM (SELECT l.holder, count(*) FILTER (WHERE l.on_conflict = 'replace') AS replaced,
                     count(*) FILTER (WHERE l.on_conflict = 'reschedule') AS rescheduled FROM late AS l GROUP BY l.holder) AS c
        WHERE u.job_id = c.holder AND c.replaced + c.rescheduled > 0),
    logged AS (
        INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, former_payload)
        SELECT j.id, j.attempts, j.fencing_token, 'replaced', j.payload
        FROM replacing AS r JOIN faultline.jobs AS j ON j.id = r.holder JOIN faultline.unique_jobs AS u ON u.job_id = j.id
        WHERE u.replaced < 10 AND j.payload::text <> r.payload::text),
    moved AS (
        UPDATE faultline.jobs AS j
        SET payload = coalesce(r.payload, j.payload),
            next_run_at = CASE WHEN m.holder IS NULL THEN j.next_run_at ELSE m.next_run_at END,
            expires_at = CASE WHEN m.holder IS NULL THEN j.expires_at ELSE m.expires_at END,
            limited = j.limited AND m.holder IS NULL -- it leaves the line, and its time may be centuries ahead
        FROM unnest(waiting) AS w (id) LEFT JOIN replacing AS r ON r.holder = w.id LEFT JOIN moving AS m ON m.holder = w.id
        WHERE j.id = w.id
        RETURNING j.id, j.queue, m.next_run_at)
    SELECT array_agg(DISTINCT m.queue) FILTER (WHERE m.next_run_at <= moment), array_agg(m.id) FILTER (WHERE m.next_run_at IS NOT NULL)
    INTO due_queues, rescheduled FROM moved AS m;
    DELETE FROM faultline.waiting_jobs AS w WHERE w.job_id = ANY (rescheduled); -- the caller has locked the jobs (places.sql)
    PERFORM faultline.wake(q.queue) FROM unnest(due_queues) AS q (queue);
    RETURN waiting;
END $$;

-- ── Retry and retention ────────────────────────────────────────────────────────────────────────────────────────────

-- Takes the keys of failed jobs that count again when an operator retries them, and returns the jobs that may not be retried: refused
-- if another job counts for the key, locked if another session holds it. Called before the jobs are locked. With `waits` false it
-- waits only for a producer that is just inserting a key, with none locked; existing keys that are locked are skipped.
CREATE OR REPLACE FUNCTION faultline.take_keys_again(job_ids uuid[], waits boolean)
RETURNS TABLE (job_id uuid, verdict text, unique_key text, holder uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    ids    uuid[];
    keys   text[];
    locked text[];
BEGIN
    SELECT array_agg(u.job_id ORDER BY u.job_id DESC), array_agg(u.unique_key ORDER BY u.job_id DESC) INTO ids, keys
    FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
    WHERE u.job_id = ANY (job_ids) AND j.state <> 'succeeded' AND (u.while_ = 'unfinished' OR j.fencing_token = 0);
    IF ids IS NULL THEN
        RETURN;
    ELSIF waits THEN
        PERFORM faultline.lock_unique_keys(keys, ids);
        locked := keys;
    ELSE
        INSERT INTO faultline.unique_keys (unique_key, job_id)
        SELECT DISTINCT ON (g.key) g.key, g.id FROM unnest(keys, ids) AS g (key, id)
        WHERE NOT EXISTS (SELECT FROM faultline.unique_keys AS k WHERE k.unique_key = g.key) -- an insert would wait for its lock
        ORDER BY g.key, g.id DESC
        ON CONFLICT (unique_key) DO NOTHING;
        locked := ARRAY(SELECT k.unique_key FROM faultline.unique_keys AS k WHERE k.unique_key = ANY (keys)
                        ORDER BY k.unique_key FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    PERFORM faultline.take_free_keys(ARRAY(SELECT CASE WHEN g.key = ANY (locked) THEN g.key END
                                           FROM unnest(keys) WITH ORDINALITY AS g (key, ordinal) ORDER BY g.ordinal), ids);
    -- Above READ COMMITTED, a producer with an older snapshot would take the job for failed. Changing the row makes it fail.
    UPDATE faultline.unique_keys AS k SET job_id = k.job_id WHERE k.unique_key = ANY (locked);
    RETURN QUERY
        SELECT g.id, CASE WHEN g.key = ANY (locked) THEN 'refused' ELSE 'locked' END, g.key, k.job_id
        FROM unnest(ids, keys) AS g (id, key) LEFT JOIN faultline.unique_keys AS k ON k.unique_key = g.key
        WHERE k.job_id IS DISTINCT FROM g.id OR g.key <> ALL (locked);
END $$;

-- Purges keys whose job is gone or no longer counts, in the order of the keys. Safe because it judges them under their locks: a
-- key that an enqueue takes meanwhile is locked and skipped, or its new job counts.
CREATE OR REPLACE FUNCTION faultline.purge_unique_keys(
    after_key text DEFAULT NULL, batch_size integer DEFAULT 500, dry_run boolean DEFAULT false)
RETURNS TABLE (keys integer, last_key text) -- last_key: where to continue; null at the end
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    page text[];
BEGIN
    IF (batch_size BETWEEN 1 AND 10000) IS NOT TRUE THEN
        RAISE EXCEPTION 'cannot purge % rows at a time', batch_size USING ERRCODE = 'FL005', HINT = 'batch_size is 1 to 10000.';
    END IF;
    page := ARRAY(SELECT k.unique_key FROM faultline.unique_keys AS k WHERE k.unique_key > coalesce(after_key, '')
                  ORDER BY k.unique_key LIMIT batch_size);
    last_key := CASE WHEN cardinality(page) = batch_size THEN page[batch_size] END;
    IF NOT dry_run THEN
        page := ARRAY(SELECT k.unique_key FROM faultline.unique_keys AS k WHERE k.unique_key = ANY (page)
                      ORDER BY k.unique_key FOR UPDATE SKIP LOCKED);
    END IF;
    page := ARRAY(SELECT k.unique_key FROM faultline.unique_keys AS k
                  WHERE k.unique_key = ANY (page)
                    AND NOT EXISTS (SELECT FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
                                    WHERE u.job_id = k.job_id AND faultline.counts_for_key(u, j)));
    keys := cardinality(page);
    IF NOT dry_run THEN
        DELETE FROM faultline.unique_keys AS k WHERE k.unique_key = ANY (page);
    END IF;
    RETURN NEXT;
END $$;
