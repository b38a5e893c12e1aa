-- The audit log: each operator's action, its time, origin and result.
-- A function that acts for an operator writes its row in the same transaction: every action has its row, and an action that was
-- rolled back has none. Rows are only added; retention purges the oldest.

-- Writes one row. The setting faultline.actor names the actor, as {"kind", "name", "address"}: the API sets it to the key of a
-- request, the command line to the account that runs it. PostgreSQL does not verify it. The role of the session, which it
-- does verify, is always recorded too, and identifies a caller from psql.
CREATE OR REPLACE FUNCTION faultline.write_audit(
    action text, object text, result text, code text DEFAULT NULL, detail text DEFAULT NULL, times integer DEFAULT 1)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    actor_setting text := nullif(current_setting('faultline.actor', true), '');
    actor         jsonb := '{}';
BEGIN
    IF actor_setting IS NOT NULL THEN
        BEGIN
            actor := actor_setting::jsonb;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character OR invalid_parameter_value THEN
            actor := jsonb_build_object('kind', 'unknown', 'name', actor_setting);
        END;
    END IF;
    INSERT INTO faultline.audit_log (actor_kind, actor, role, address, action, object, result, code, detail, times)
    VALUES (left(coalesce(actor ->> 'kind', 'role'), 50), left(coalesce(actor ->> 'name', session_user), 200), session_user,
            left(coalesce(actor ->> 'address', host(inet_client_addr())), 100), left(action, 100), left(object, 300), result,
            left(code, 100), left(detail, 1000), times);
END $$;

-- Records what the HTTP API refused without a query: a wrong key, a scope that the key lacks. The API counts equal refusals and
-- reports them together. At most 60 a minute are recorded, so that no caller can fill the table.
CREATE OR REPLACE FUNCTION faultline.record_refusal(action text, object text, code text, times integer DEFAULT 1)
RETURNS boolean -- false: not recorded, the limit is reached
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM (SELECT a.result, a.at FROM faultline.audit_log AS a ORDER BY a.id DESC LIMIT 60) AS newest
        WHERE newest.result = 'refused' AND newest.at > clock_timestamp() - interval '1 minute') >= 60 THEN
        RETURN false;
    END IF;
    PERFORM faultline.write_audit(record_refusal.action, record_refusal.object, 'refused', record_refusal.code,
                                  times => greatest(1, record_refusal.times));
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION faultline.refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'rows of the audit log are never changed, and removed by retention alone (%)', TG_OP
        USING ERRCODE = 'FL002', HINT = 'To change how long rows are kept, set --keep-audit-days.';
END $$;

CREATE OR REPLACE TRIGGER guard_update BEFORE UPDATE ON faultline.audit_log FOR EACH ROW
EXECUTE FUNCTION faultline.refuse_audit_change();

CREATE OR REPLACE TRIGGER guard_delete BEFORE DELETE ON faultline.audit_log FOR EACH ROW
WHEN (current_setting('faultline.verb', true) IS DISTINCT FROM 'retention')
EXECUTE FUNCTION faultline.refuse_audit_change();

CREATE OR REPLACE TRIGGER guard_truncate BEFORE TRUNCATE ON faultline.audit_log FOR EACH STATEMENT
EXECUTE FUNCTION faultline.refuse_audit_change();
