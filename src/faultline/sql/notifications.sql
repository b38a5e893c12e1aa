-- Notifications, which wake idle workers. No job needs one: workers poll too, and losing one costs a poll interval.
--
-- A worker that has free slots announces itself for its queues (announce_idle), and listens on a channel of its own. What makes a job
-- due calls wake, which notifies one announced worker, chosen at random, and none if there is none: then all workers are busy, and
-- claim again without being told. So one job wakes about one worker, and an enqueue sends no NOTIFY while all workers are busy. That
-- matters because PostgreSQL commits transactions that have sent a NOTIFY one after the other.
--
-- A notified worker whose slots are all taken withdraws, and has another worker notified (withdraw_idle). A worker that announces
-- itself claims once more afterwards, because a job may have become due between its last claim and its announcement.

-- The channel on which only this worker listens. A name of a channel has at most 63 bytes.
CREATE OR REPLACE FUNCTION faultline.channel_of(worker text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'faultline_' || pg_catalog.md5(pg_catalog.convert_to(worker, 'UTF8'))
$$;

-- LISTEN takes no parameters.
CREATE OR REPLACE FUNCTION faultline.listen_as(worker text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('LISTEN %I', faultline.channel_of(worker));
END $$;

-- Whether this session may notify. It can be switched off by SET faultline.notify = 'off', because NOTIFY does not work in prepared
-- transactions. It is skipped while the server's notification queue is half full, because a full queue would make COMMIT fail.
CREATE OR REPLACE FUNCTION faultline.may_notify() RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT pg_catalog.current_setting('faultline.notify', true) IS DISTINCT FROM 'off'
           AND pg_catalog.pg_notification_queue_usage() < 0.5
$$;

-- Notifies every worker. The payload is a queue, '!worker', '@seconds queue', or '!' when a worker registers (statements/workers.py).
CREATE OR REPLACE FUNCTION faultline.broadcast(payload text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF faultline.may_notify() THEN
        PERFORM pg_notify('faultline', payload);
    END IF;
END $$;

-- Notifies as many idle workers of a queue as jobs became due. If there are none, it looks again at COMMIT, by a deferred trigger,
-- because a worker may become idle while this transaction lasts. The row of that trigger is deleted at once, so that the table
-- stays empty; the queued event still has it.
CREATE OR REPLACE FUNCTION faultline.wake(queue text, jobs bigint DEFAULT 1) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_tid tid;
BEGIN
    IF faultline.may_notify() AND NOT faultline.notify_idle(queue, jobs) THEN
        INSERT INTO faultline.pending_wakes AS p VALUES (queue, jobs) RETURNING p.ctid INTO row_tid;
        DELETE FROM faultline.pending_wakes AS p WHERE p.ctid = row_tid;
    END IF;
END $$;

-- Chooses the workers, from a random place on in the order of the numbers that they drew. Workers that serve every queue are asked
-- if too few others have announced this one: it may be new to them. Returns whether it found a worker.
CREATE OR REPLACE FUNCTION faultline.notify_idle(queue text, jobs bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start  double precision := random();
    wanted bigint := least(greatest(jobs, 1), 100);
BEGIN
    PERFORM pg_notify(faultline.channel_of(chosen.worker), notify_idle.queue)
    FROM ((SELECT i.worker FROM faultline.idle_workers AS i WHERE i.queue = notify_idle.queue AND i.draw >= start
           ORDER BY i.draw LIMIT wanted)
          UNION ALL
          (SELECT i.worker FROM faultline.idle_workers AS i WHERE i.queue = notify_idle.queue AND i.draw < start
           ORDER BY i.draw LIMIT wanted)
          UNION ALL
          (SELECT i.worker FROM faultline.idle_workers AS i WHERE i.queue = '*' AND i.draw >= start ORDER BY i.draw LIMIT wanted)
          UNION ALL
          (SELECT i.worker FROM faultline.idle_workers AS i WHERE i.queue = '*' AND i.draw < start ORDER BY i.draw LIMIT wanted)
          LIMIT wanted) AS chosen;
    RETURN FOUND;
END $$;

-- Notifies idle workers of queues whose jobs became due without a notification: their time has come, or a claim skipped them while
-- they were locked. The leading reconciler calls it, so that idle workers need not ask. A job that became due in the last 0.05 s is
-- left out, because its own notification may be on its way. Like lanes_of, it reads one index entry for each lane. Returns how many
-- queues had a worker notified, when the next job of an idle worker's queue is due, and how long that took.
CREATE OR REPLACE FUNCTION faultline.wake_for_due_jobs(
    OUT notified bigint, OUT next_due_seconds double precision, OUT took_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    began     timestamptz := clock_timestamp();
    due_until timestamptz := statement_timestamp() - interval '50 milliseconds';
BEGIN
    notified := 0;
    PERFORM FROM faultline.idle_workers LIMIT 1;
    IF FOUND AND faultline.may_notify() THEN
        WITH RECURSIVE lane (queue, priority, due_at) AS (
            (SELECT j.queue::text, j.priority, j.next_run_at FROM faultline.jobs AS j WHERE j.state = 'queued'
             ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1)
            UNION ALL
            SELECT n.queue, n.priority, n.next_run_at
            FROM lane AS l
            CROSS JOIN LATERAL (
                SELECT j.queue::text AS queue, j.priority, j.next_run_at FROM faultline.jobs AS j
                WHERE j.state = 'queued' AND (j.queue, j.priority) > (l.queue, l.priority)
                ORDER BY j.queue, j.priority, j.next_run_at, j.id LIMIT 1) AS n),
        watched AS MATERIALIZED (
            SELECT l.queue, l.priority, l.due_at FROM (SELECT * FROM lane LIMIT 1000) AS l
            WHERE EXISTS (SELECT FROM faultline.idle_workers AS i WHERE i.queue = l.queue OR i.queue = '*')
              AND NOT EXISTS (SELECT FROM faultline.paused_queues AS z WHERE z.queue = l.queue)),
        due AS (
            SELECT w.queue, sum(found.jobs)::bigint AS jobs
            FROM watched AS w
            CROSS JOIN LATERAL (
                SELECT count(*) AS jobs FROM (
                    SELECT FROM faultline.jobs AS j
                    WHERE j.state = 'queued' AND j.queue = w.queue AND j.priority = w.priority AND j.next_run_at <= due_until
                    ORDER BY j.next_run_at, j.id LIMIT 100) AS one) AS found
            WHERE w.due_at <= due_until GROUP BY w.queue)
        SELECT (SELECT count(*) FILTER (WHERE faultline.notify_idle(d.queue, d.jobs)) FROM due AS d),
               (SELECT extract(epoch FROM min(w.due_at) - due_until) FROM watched AS w WHERE w.due_at > due_until)
        INTO notified, next_due_seconds;
    END IF;
    took_seconds := extract(epoch FROM clock_timestamp() - began);
END $$;

-- Runs at COMMIT, as the owner: the producer's account has no rights on idle_workers.
CREATE OR REPLACE FUNCTION faultline.wake_at_commit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF faultline.may_notify() THEN
        PERFORM faultline.notify_idle(NEW.queue, NEW.jobs);
    END IF;
    RETURN NULL;
END $$;

-- Announces a worker for these queues, and for no others. '*' stands for every queue. Repeat it now and then: the table is
-- unlogged, so a crash of the server empties it.
CREATE OR REPLACE FUNCTION faultline.announce_idle(worker text, queues text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM faultline.idle_workers AS i WHERE i.worker = announce_idle.worker AND i.queue <> ALL (announce_idle.queues);
    INSERT INTO faultline.idle_workers (worker, queue)
    SELECT announce_idle.worker, q.name FROM unnest(announce_idle.queues) AS q (name)
    ON CONFLICT DO NOTHING;
END $$;

-- Withdraws it, and passes on notifications about these queues, which it cannot follow.
CREATE OR REPLACE FUNCTION faultline.withdraw_idle(worker text, notified text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM faultline.idle_workers AS i WHERE i.worker = withdraw_idle.worker;
    PERFORM faultline.wake(n.queue, count(*)) FROM unnest(notified) AS n (queue) GROUP BY n.queue;
END $$;

-- As in handler_transactions.sql: PostgreSQL has no CREATE OR REPLACE for constraint triggers.
DO $$
BEGIN
    PERFORM FROM pg_trigger WHERE tgrelid = 'faultline.pending_wakes'::regclass
        AND tgname = 'wake_at_commit' AND tgenabled IN ('O', 'A');
    IF NOT FOUND THEN
        DROP TRIGGER IF EXISTS wake_at_commit ON faultline.pending_wakes;
        CREATE CONSTRAINT TRIGGER wake_at_commit AFTER INSERT ON faultline.pending_wakes
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.wake_at_commit();
    END IF;
END $$;
