-- The roles, none of which can log in, and who owns what is here. What each may do is in grants.sql.
--
-- faultline_owner owns the schema and everything in it, so that no account of any process owns a table or a trigger: an
-- owner can switch a trigger off, and go round the fence. Its members, and superusers, are who may migrate. The other four
-- are for the accounts of your processes: GRANT faultline_worker TO my_worker;
--
-- `faultline migrate --roles` applies both files; they are safe to repeat. Roles belong to the whole cluster: databases
-- that share one share them, and a member of faultline_owner owns Faultline in each.

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
                NULL; -- another migrator was faster
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'account % may not create the role %', account, name USING
                    ERRCODE = 'insufficient_privilege', HINT = format(
                        'as a superuser, or with CREATEROLE, run: CREATE ROLE faultline_owner; CREATE ROLE faultline_producer; '
                        'CREATE ROLE faultline_worker; CREATE ROLE faultline_inspector; CREATE ROLE faultline_operator; '
                        'GRANT faultline_owner TO %s; then migrate again', account);
        END;
    END LOOP;

    -- To give something away one must be able to become its new owner. Who created the role may grant it to itself.
    IF NOT pg_has_role('faultline_owner', CASE WHEN current_setting('server_version_num')::integer >= 160000
                                               THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE 'GRANT faultline_owner TO ' || account;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'account % is not a member of faultline_owner', account USING
                ERRCODE = 'insufficient_privilege',
                HINT = format('as a superuser, or whoever created that role, run: GRANT faultline_owner TO %s; '
                              'then migrate again', account);
        END;
    END IF;
END $$;

-- Whether this data directory was laid down from a base backup (epoch.sql) can be seen in one file's time. Where this account
-- may not pass that right on, as on a managed service, that one question stays unanswered.
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO faultline_owner;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;

-- What is not faultline_owner's yet is given to it. Indexes, row types and the sequences of columns go with their table.
DO $$
DECLARE
    tables    text[];
    theirs    name[];
    statement text;
    patience  text := current_setting('lock_timeout');
    deadline  timestamptz := clock_timestamp() + coalesce(nullif(patience, '0'), '10s')::interval;
BEGIN
    SELECT array_agg(format('faultline.%I', relname) ORDER BY relname <> 'workers', relname) INTO tables -- as heartbeats do
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

    -- It takes the tables out of everyone's hands for a moment. All are locked together or none: whoever holds one and
    -- waits for another will meet one that does the reverse, and everyone who comes after waits behind.
    WHILE tables IS NOT NULL LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(tables, ', '));
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF clock_timestamp() > deadline THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.02 + 0.08 * random()); -- to let others pass
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', patience, true);

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
