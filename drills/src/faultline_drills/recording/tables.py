"""The drill's own tables: effects, and every change of a job's row.

Effects and transitions draw their order from one sequence, so no clock decides which came first. A
job's transitions are in order because each transaction locks the row.

A fenced step does not change the job's row, so its order number is drawn again by a deferred trigger
when its transaction commits. The start of each INSERT into the ledger is recorded before the fence reads
the clock, so the rule about late commits needs no tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from faultline.postgres.sessions import Connection
from faultline_drills.recording.database_state import (
    DatabaseState,
    EffectFact,
    ExternalCall,
    JobFact,
    LedgerFact,
    LostState,
    Transition,
)

TABLES: LiteralString = """
    CREATE SCHEMA drill;
    CREATE SEQUENCE drill.event_order;
    CREATE TABLE drill.effects (
        order_number bigint  NOT NULL DEFAULT nextval('drill.event_order'),
        transaction bigint  NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
        job_id      uuid    NOT NULL,
        token       bigint  NOT NULL,
        part        integer NOT NULL DEFAULT 1,
        is_step     boolean NOT NULL DEFAULT false);
    CREATE TABLE drill.committed_steps (
        transaction bigint PRIMARY KEY DEFAULT pg_current_xact_id()::text::bigint,
        order_number bigint NOT NULL DEFAULT nextval('drill.event_order'));
    CREATE TABLE drill.transitions (
        order_number bigint NOT NULL DEFAULT nextval('drill.event_order'),
        transaction bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
        at          timestamptz NOT NULL DEFAULT clock_timestamp(),
        job_id uuid, before text, after text, token bigint, lease_id uuid, attempts integer,
        lease_expires_at timestamptz, ledger_insert_at timestamptz);
    CREATE FUNCTION drill.record_transition() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO drill.transitions (job_id, before, after, token, lease_id, attempts, lease_expires_at,
                                 ledger_insert_at)
        VALUES (NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state, NEW.fencing_token,
                NEW.lease_id, NEW.attempts, NEW.lease_expires_at,
                nullif(current_setting('drill.ledger_insert_at', true), '')::timestamptz);
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_transition AFTER INSERT OR UPDATE ON faultline.jobs
    FOR EACH ROW EXECUTE FUNCTION drill.record_transition();
    CREATE FUNCTION drill.record_ledger_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        PERFORM set_config('drill.ledger_insert_at', clock_timestamp()::text, true);
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_ledger_insert BEFORE INSERT ON faultline.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION drill.record_ledger_insert();
    CREATE FUNCTION drill.record_step_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO drill.committed_steps DEFAULT VALUES
        ON CONFLICT (transaction) DO UPDATE SET order_number = EXCLUDED.order_number;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER record_step_commit AFTER INSERT ON drill.effects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.is_step)
    EXECUTE FUNCTION drill.record_step_commit();
"""

_JOBS = """
    SELECT id::text, idempotency_key, state, attempts, max_attempts, fencing_token,
           coalesce((payload ->> 'parts')::integer, CASE task WHEN 'drill.note' THEN 0 ELSE 1 END)
    FROM faultline.jobs
"""
_TRANSITIONS = """
    SELECT order_number, transaction, job_id::text, before, after, token, lease_id, attempts,
           extract(epoch FROM at)::float8, extract(epoch FROM lease_expires_at)::float8,
           extract(epoch FROM ledger_insert_at)::float8
    FROM drill.transitions ORDER BY order_number
"""
_EFFECTS = """
    SELECT coalesce(s.order_number, e.order_number), e.transaction, e.job_id::text, e.token, e.part, e.is_step
    FROM drill.effects AS e LEFT JOIN drill.committed_steps AS s ON s.transaction = e.transaction
"""
_LEDGER = "SELECT job_id::text, fencing_token FROM faultline.ledger"


def install_tables(conn: Connection) -> None:
    """Create the tables in a scratch database that has Faultline's schema."""
    conn.execute(TABLES)


def read_database_state(
    conn: Connection,
    external_calls: Sequence[ExternalCall] = (),
    lost_states: Sequence[LostState] = (),
) -> DatabaseState:
    def rows(query: LiteralString) -> list[tuple[Any, ...]]:
        return conn.execute(query).fetchall()

    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # one snapshot
        return DatabaseState(
            jobs=tuple(JobFact(*row) for row in rows(_JOBS)),
            ledger=tuple(LedgerFact(*row) for row in rows(_LEDGER)),
            effects=tuple(EffectFact(*row) for row in rows(_EFFECTS)),
            transitions=tuple(Transition(*row) for row in rows(_TRANSITIONS)),
            external_calls=tuple(external_calls),
            lost_states=tuple(lost_states),
            rejections=rows("SELECT count(*) FROM faultline.rejections")[0][0],
        )
