-- Creates the roles, none of which can log in, and makes faultline_owner the owner of the schema. grants.sql has their rights.
--
-- faultline_owner owns the schema and everything in it, so that no account of a process owns a table or a trigger: an owner can
-- disable a trigger, and so bypass the fence. Its members, and superusers, may migrate. The other four roles are for the
-- accounts of your processes: GRANT faultline_worker TO my_worker;
--
-- `faultline migrate --roles` applies both files; they are safe to repeat. Roles belong to the whole cluster: all of its
-- databases share them, and a member of faultline_owner owns Faultline in each.

DO $$
DECLARE
    name    text;
    account text := quote_ident(current_user);
BEGIN
    FOREACH name IN ARRAY ARRAY['faultline_owner', 'faultline_producer', 'faultline_worker', 'faultline_inspector',
                                'faultline_operator'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = name);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL; -- another migrator created it meanwhile
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'account % may not create the role %', account, name USING
                    ERRCODE = 'insufficient_privilege', HINT = format(
                        'as a superuser, or with CREATEROLE, run: CREATE ROLE faultline_owner; CREATE ROLE faultline_producer; '
                        'CREATE ROLE faultline_worker; CREATE ROLE faultline_inspector; CREATE ROLE faultline_operator; '
                        'GRANT faultline_owner TO %s; then migrate again', account);
        END;
    END LOOP;

    -- ALTER … OWNER needs the right to SET ROLE to the new owner. The account that created the role may grant it to itself.
    IF NOT pg_has_role('faultline_owner', CASE WHEN current_setting('server_version_num')::integer >= 160000
                                               THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE 'GRANT faultline_owner TO ' || account;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'account % is not a member of faultline_owner', account USING
                ERRCODE = 'insufficient_privilege',
                HINT = format('as a superuser, or the account that created that role, run: GRANT faultline_owner TO %s; '
                              'then migrate again', account);
        END;
    END IF;
END $$;

-- epoch.sql reads from the time of one file whether this data directory comes from a base backup. On a managed service this
-- account may not grant that right, and restored_from stays unknown.
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO faultline_owner;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

-- Gives faultline_owner everything that it does not own yet. Indexes, row types and columns' sequences follow their table.
DO $$
DECLARE
    tables     text[];
    theirs     name[];
    statement  text;
    lock_limit text := current_setting('lock_timeout');
    deadline   timestamptz := clock_timestamp() + coalesce(nullif(lock_limit, '0'), '10s')::interval;
BEGIN
    SELECT array_agg(format('faultline.%I', relname) ORDER BY relname <> 'workers', relname) INTO tables -- workers first, as heartbeats do
    FROM pg_class WHERE relnamespace = to_regnamespace('faultline') AND relkind = 'r' AND relowner <> 'faultline_owner'::regrole;
    SELECT array_agg(DISTINCT pg_get_userbyid(o.owner)) INTO theirs
    FROM (SELECT nspowner FROM pg_namespace WHERE nspname = 'faultline'
          UNION SELECT relowner FROM pg_class WHERE relnamespace = to_regnamespace('faultline')
          UNION SELECT proowner FROM pg_proc WHERE pronamespace = to_regnamespace('faultline')) AS o (owner)
    WHERE NOT pg_has_role(o.owner, 'USAGE') AND o.owner <> 'faultline_owner'::regrole;
    IF theirs IS NOT NULL THEN
        RAISE EXCEPTION 'account % may not give away what % owns', quote_ident(current_user), theirs USING
            ERRCODE = 'insufficient_privilege',
            HINT = format('as a superuser migrate with --roles, or run: GRANT faultline_owner TO %1$I; and migrate with '
                          '--roles as %1$s', theirs[1]);
    END IF;

    -- All tables are locked, or none: a session that held one and waited for another would deadlock with jobs' transactions,
    -- and every later statement would wait behind it.
    WHILE tables IS NOT NULL LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(tables, ', '));
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF clock_timestamp() > deadline THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.02 + 0.08 * random()); -- lets waiting sessions continue
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', lock_limit, true);

    FOR statement IN
        SELECT format('ALTER %s %s OWNER TO faultline_owner', o.kind, o.name) FROM (
            SELECT 1, nspowner, 'SCHEMA', 'faultline' FROM pg_namespace WHERE nspname = 'faultline'
            UNION ALL
            SELECT 2, relowner, 'TABLE', format('faultline.%I', relname) FROM pg_class
            WHERE relnamespace = to_regnamespace('faultline') AND relkind = 'r'
            UNION ALL
            SELECT 3, proowner, 'FUNCTION', oid::regprocedure::text FROM pg_proc
            WHERE pronamespace = to_regnamespace('faultline')
            UNION ALL
            SELECT 3, typowner, 'DOMAIN', format('faultline.%I', typname) FROM pg_type
            WHERE typnamespace = to_regnamespace('faultline') AND typtype = 'd'
            UNION ALL
            SELECT 3, stxowner, 'STATISTICS', format('faultline.%I', stxname) FROM pg_statistic_ext
            WHERE stxnamespace = to_regnamespace('faultline')) AS o (ordinal, owner, kind, name)
        WHERE o.owner <> 'faultline_owner'::regrole ORDER BY o.ordinal
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;
