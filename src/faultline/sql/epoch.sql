-- Epochs: a token is never issued twice for a job, even if the server that issued it was lost.
--
-- On one server the counter in the job's row ensures that. But a lost server may take its last claims with it. The server that
-- continues (a promoted standby, a restored backup) would count from an older row, and issue tokens that outside systems have
-- already seen. So the high part of a token is an epoch, and each new history of the database gets a new one:
--
--     token = epoch * 2^22 + counter        53 bits, exact in JavaScript; the first epoch is 0, so tokens start at 1
--
-- Inside the database this is a second guard: the random lease_id already refuses the old holder.

-- A new history is recognised by these; each is null if the owner of these functions may not read it:
--   timeline           rises with every promotion, which sessions survive, and with every recovery to a point in time.
--   system_identifier  differs after a dump was restored into another cluster, and after pg_upgrade.
--   restored_from      when the base backup of this data directory was taken; -infinity if it does not come from one.
--   database_oid       differs after a dump was restored beside its original, and in a copy by CREATE DATABASE … TEMPLATE.
--                      A database that is renamed, promoted or recovered keeps it.
CREATE OR REPLACE FUNCTION faultline.timeline() RETURNS integer LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN NOT pg_is_in_recovery() AND has_function_privilege('pg_walfile_name(pg_lsn)'::regprocedure, 'EXECUTE')
                     AND has_function_privilege('pg_current_wal_lsn()'::regprocedure, 'EXECUTE')
           THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END
$$;

CREATE OR REPLACE FUNCTION faultline.server_identity(
    OUT system_identifier bigint, OUT timeline integer, OUT restored_from timestamptz, OUT database_oid oid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    timeline := faultline.timeline();
    database_oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
    IF has_function_privilege('pg_control_system()'::regprocedure, 'EXECUTE') THEN
        system_identifier := (SELECT c.system_identifier FROM pg_control_system() AS c);
    END IF;
    IF has_function_privilege('pg_stat_file(text, boolean)'::regprocedure, 'EXECUTE') THEN
        restored_from := coalesce((SELECT f.modification FROM pg_stat_file('backup_label.old', true) AS f), '-infinity');
    END IF;
END $$;

-- The epoch of the tokens that a claim issues. Safe because every claim checks timeline and database_oid in its own transaction,
-- so no token follows a promotion, or is issued in a copy, without a check. The oid is read from a file's path, which costs no
-- query. The rest can change only while the server is stopped, and is checked once per start of the server.
CREATE OR REPLACE FUNCTION faultline.current_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    known faultline.epochs;
BEGIN
    SELECT * INTO known FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1;
    IF known.server_started_at = pg_postmaster_start_time() AND (known.timeline = faultline.timeline()) IS NOT FALSE
       AND (known.database_oid = split_part(pg_relation_filepath('faultline.epochs'), '/', -2)::oid) IS NOT FALSE THEN
        RETURN known.epoch;
    END IF;
    RETURN faultline.examine_server();
END $$;

-- A new timeline begins a new epoch at once: one of several servers was promoted, and jobs must continue. Another cluster,
-- database or base backup may be a copy beside an original that still runs jobs: claims are refused with FL008 until an
-- operator calls bump_epoch.
CREATE OR REPLACE FUNCTION faultline.examine_server() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known faultline.epochs;
    here  record := faultline.server_identity();
BEGIN
    SELECT * INTO known FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1;
    IF (known.system_identifier <> here.system_identifier OR known.timeline <> here.timeline
        OR known.database_oid <> here.database_oid OR known.restored_from < here.restored_from) IS NOT TRUE THEN
        -- The same server, restarted: the first caller that gets the row's lock without waiting records it.
        UPDATE faultline.epochs AS e SET server_started_at = pg_postmaster_start_time()
        WHERE e.epoch = (SELECT o.epoch FROM faultline.epochs AS o WHERE o.epoch = known.epoch FOR UPDATE SKIP LOCKED);
        RETURN known.epoch;
    END IF;
    -- One caller at a time, by a lock on the oldest row: the others then find the epoch that the first one began.
    PERFORM FROM faultline.epochs AS e ORDER BY e.epoch LIMIT 1 FOR UPDATE;
    SELECT * INTO known FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1;
    IF known.system_identifier <> here.system_identifier THEN
        RAISE EXCEPTION 'this database was restored into another server: jobs ran on %, and this one is %',
            known.system_identifier, here.system_identifier USING ERRCODE = 'FL008',
            HINT = 'If the original is gone for good, run: faultline epoch bump. If this is a copy, run no workers on it.';
    ELSIF known.database_oid <> here.database_oid THEN
        RAISE EXCEPTION 'this database was copied or restored: jobs ran in the one with oid %, and this one has oid %',
            known.database_oid, here.database_oid USING ERRCODE = 'FL008',
            HINT = 'If the original is gone for good, run: faultline epoch bump. If this is a copy, run no workers on it.';
    ELSIF known.timeline <> here.timeline THEN
        RETURN faultline.begin_epoch('a new timeline');
    ELSIF known.restored_from < here.restored_from THEN
        RAISE EXCEPTION 'this server was restored from the base backup of %', here.restored_from USING ERRCODE = 'FL008',
            HINT = 'If the original is gone for good, run: faultline epoch bump. If this is a copy, run no workers on it.';
    END IF;
    RETURN known.epoch;
END $$;

-- The epoch is the seconds since 2025 if that is higher than the next number. Two standbys that were promoted from one timeline
-- have the same next timeline, and one may have issued tokens in an epoch that the other does not know of.
CREATE OR REPLACE FUNCTION faultline.begin_epoch(cause text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO faultline.epochs (epoch, system_identifier, timeline, restored_from, database_oid, cause)
    SELECT greatest((SELECT max(e.epoch) + 1 FROM faultline.epochs AS e),
                    floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))::bigint),
           here.system_identifier, here.timeline, here.restored_from, here.database_oid, left(begin_epoch.cause, 1000)
    FROM faultline.server_identity() AS here RETURNING epoch
$$;

-- Begins a new epoch by hand. Safe at any time: later tokens are higher, and current leases stay valid.
CREATE OR REPLACE FUNCTION faultline.bump_epoch(reason text DEFAULT NULL) RETURNS bigint -- the new one
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began bigint;
BEGIN
    PERFORM FROM faultline.epochs AS e ORDER BY e.epoch LIMIT 1 FOR UPDATE;
    began := faultline.begin_epoch(concat_ws(': ', 'by hand', bump_epoch.reason));
    PERFORM faultline.write_audit('bump epoch', 'epoch ' || began, 'done', detail => bump_epoch.reason);
    RETURN began;
END $$;

-- The current epoch, the server on which it began, and the current server. Changes nothing.
CREATE OR REPLACE FUNCTION faultline.epoch_status()
RETURNS TABLE (epoch bigint, began_at timestamptz, cause text,
               known_system_identifier bigint, known_timeline integer, known_restored_from timestamptz, known_database_oid oid,
               system_identifier bigint, timeline integer, restored_from timestamptz, database_oid oid)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT known.epoch, known.began_at, known.cause,
           known.system_identifier, known.timeline, known.restored_from, known.database_oid,
           here.system_identifier, here.timeline, here.restored_from, here.database_oid
    FROM (SELECT * FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1) AS known, faultline.server_identity() AS here
$$;
