-- Which history of this database its tokens belong to.
--
-- A token is given out once per job. Inside one run of one server the row's own counter sees to that. But a server that is
-- lost takes its last claims with it, and the one that goes on in its place (a promoted standby, a restored backup) would
-- count on from an older row: a token that somebody outside has already seen would be given out again. So the high part
-- of a token is an epoch, and a new history is a new epoch:
--
--     token = epoch · 2^22 + a counter        53 bits in all, exact in JavaScript; epoch 0 at install, so tokens start at 1
--
-- Inside the database this is a second lock on the same door: lease_id, which is random, already refuses the old holder.

-- What tells one history from another, as far as this server lets the owner of these functions see it; null where it does not.
--   timeline:          raised by every promotion, which sessions survive, and by every recovery to a point in time.
--   system_identifier: another one after a restored dump and after pg_upgrade, for the cluster is another.
--   restored_from:     when the base backup was taken that this data directory was laid down from; -infinity if it was not.
--   database_oid:      another one after a dump was restored beside its original, and in a copy by CREATE DATABASE … TEMPLATE.
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

-- The epoch that a claim gives its tokens out in. Safe because every claim looks, in its own transaction: there is no moment
-- between a promotion and the next token without such a look. Nor is there one for a copy of the database on the same server;
-- its oid is read from the path of a file, which costs no query. Whatever else could change needs another server process,
-- so the rest is looked at once for each start of the server.
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

-- A new timeline is a new epoch at once: PostgreSQL promotes one server out of several, and jobs must go on. Another
-- cluster, another database or another base backup may be a copy, made to look at, beside an original that is still at work: claims are
-- refused until somebody who knows says that this one goes on.
CREATE OR REPLACE FUNCTION faultline.examine_server() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known faultline.epochs;
    here  record := faultline.server_identity();
BEGIN
    SELECT * INTO known FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1;
    IF (known.system_identifier <> here.system_identifier OR known.timeline <> here.timeline
        OR known.database_oid <> here.database_oid OR known.restored_from < here.restored_from) IS NOT TRUE THEN
        -- The same server, started again: noted by whoever can do it without waiting for anybody.
        UPDATE faultline.epochs AS e SET server_started_at = pg_postmaster_start_time()
        WHERE e.epoch = (SELECT o.epoch FROM faultline.epochs AS o WHERE o.epoch = known.epoch FOR UPDATE SKIP LOCKED);
        RETURN known.epoch;
    END IF;
    -- One at a time, behind the oldest row: the others then find what the first one wrote.
    PERFORM FROM faultline.epochs AS e ORDER BY e.epoch LIMIT 1 FOR UPDATE;
    SELECT * INTO known FROM faultline.epochs AS e ORDER BY e.epoch DESC LIMIT 1;
    IF known.system_identifier <> here.system_identifier THEN
        RAISE EXCEPTION 'this database was restored into another server: it was at work on %, and this one is %',
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

-- At least the second, and not just the next number: two standbys that were promoted from one timeline call the next one
-- by the same name, and an epoch may have begun, and given out tokens, in a history that this one never heard of.
CREATE OR REPLACE FUNCTION faultline.begin_epoch(cause text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO faultline.epochs (epoch, system_identifier, timeline, restored_from, database_oid, cause)
    SELECT greatest((SELECT max(e.epoch) + 1 FROM faultline.epochs AS e),
                    floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))::bigint),
           here.system_identifier, here.timeline, here.restored_from, here.database_oid, left(begin_epoch.cause, 1000)
    FROM faultline.server_identity() AS here RETURNING epoch
$$;

-- Safe at any time: tokens go on from a higher place, and whoever holds a lease keeps it.
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

-- The current epoch, the server as it was then, and as it is now. Changes nothing.
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
