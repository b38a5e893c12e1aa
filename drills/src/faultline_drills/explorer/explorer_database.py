"""The scratch database for interleavings, emptied before each one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from faultline.postgres.sessions import connect
from faultline_drills.explorer.limit_rules import LimitChange, LimitFacts
from faultline_drills.explorer.schedule_rules import ScheduleFacts
from faultline_drills.explorer.schedule_state import look_once, read_schedule_facts
from faultline_drills.explorer.stepped_session import SteppedSession
from faultline_drills.recording.database_state import DatabaseState
from faultline_drills.recording.tables import install_tables, read_database_state

# The guards stay enabled: only retention may delete ledger entries, so this acts as retention.
_DELETE_ALL = """
    SELECT set_config('faultline.verb', 'retention', true);
    DELETE FROM faultline.ledger; DELETE FROM faultline.jobs;
    DELETE FROM faultline.unique_jobs; DELETE FROM faultline.unique_keys;
    DELETE FROM faultline.rejections; DELETE FROM faultline.attempts_log; DELETE FROM faultline.workers;
    DELETE FROM faultline.limits; DELETE FROM faultline.limit_states; DELETE FROM faultline.places;
    DELETE FROM faultline.limit_arguments; DELETE FROM faultline.waiting_jobs;
    DELETE FROM faultline.schedules; DELETE FROM faultline.schedule_firings;
    DELETE FROM drill.limit_changes;
    DELETE FROM drill.effects; DELETE FROM drill.transitions; DELETE FROM drill.committed_steps
"""
_VACUUM = "VACUUM faultline.ledger, faultline.jobs, drill.effects, drill.transitions, drill.committed_steps"
_VACUUM_EVERY = 500  # resets
_TERMINATION_MILLISECONDS = 10_000

# The writer of a transition: the session's application name begins with the actor's name.
_WRITER_COLUMN = """
    ALTER TABLE drill.transitions
    ADD COLUMN writer text DEFAULT current_setting('application_name')
"""
# Changes of limits draw their order from the sequence of the transitions.
_LIMIT_CHANGES = """
    CREATE TABLE drill.limit_changes (
        order_number bigint NOT NULL DEFAULT nextval('drill.event_order'), max_running integer);
    CREATE FUNCTION drill.record_limit_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO drill.limit_changes (max_running) VALUES (NEW.max_running);
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_limit_change AFTER INSERT OR UPDATE ON faultline.limits
    FOR EACH ROW EXECUTE FUNCTION drill.record_limit_change()
"""
_READ_LIMIT_CHANGES = "SELECT order_number, max_running FROM drill.limit_changes ORDER BY 1"
_READ_LIMITED_JOBS = """
    SELECT j.id::text, EXISTS (SELECT FROM faultline.places AS p WHERE p.job_id = j.id),
           j.state = 'running', EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.job_id = j.id),
           j.state = 'queued' AND j.next_run_at > clock_timestamp() + interval '900 years',
           j.payload ->> 'key'
    FROM faultline.jobs AS j
"""
_READ_WRITERS = "SELECT order_number, split_part(writer, ' ', 1) FROM drill.transitions"

_BLOCKED = "SELECT pid FROM unnest(%s::int[]) AS pid WHERE pg_blocking_pids(pid) && %s::int[]"
_JOBS = """
    SELECT j.state, j.fencing_token, j.state = 'running' AND j.lease_expires_at <= clock_timestamp(),
           (SELECT count(*) FROM drill.effects AS e WHERE e.job_id = j.id AND NOT e.is_step)
    FROM faultline.jobs AS j ORDER BY j.id
"""


_READ_UNIQUE_JOBS = """
    SELECT j.id::text, u.while_, j.payload ->> 'by'
    FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
"""


@dataclass(frozen=True, slots=True)
class UniqueFact:
    while_: str
    payload_by: str | None  # the producer whose payload the job has in the end


@dataclass(frozen=True, slots=True)
class TransitionWriters:
    """The actor that made each transition, by the transition's order."""

    by_order: Mapping[int, str]

    def of(self, order: int) -> str:
        return self.by_order.get(order, "")


class ExplorerDatabase:
    """Keeps its sessions between interleavings, because opening one is slow."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._sessions: dict[tuple[str, str], SteppedSession] = {}
        self._resets = 0
        # For setup and for finishing jobs.
        self.setup = connect(url, application_name="setup drill")
        self._observer = connect(url, application_name="observer drill")
        self.setup.execute("SET synchronous_commit = off")
        found = self.setup.execute("SELECT to_regclass('drill.transitions') IS NULL").fetchone()
        if found == (True,):
            install_tables(self.setup)
            self.setup.execute(_WRITER_COLUMN)
            self.setup.execute(_LIMIT_CHANGES)

    def __enter__(self) -> ExplorerDatabase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            session.close()
        self.setup.close()
        self._observer.close()

    def session(self, owner: str, purpose: str) -> SteppedSession:
        key = (owner, purpose)
        if key not in self._sessions:
            self._sessions[key] = SteppedSession(self.url, owner, purpose)
        return self._sessions[key]

    def sessions_of(self, owner: str) -> list[SteppedSession]:
        return [session for (name, _), session in self._sessions.items() if name == owner]

    def reset(self) -> None:
        """Delete all jobs and reset all sessions."""
        for session in self._sessions.values():
            session.reset()
        self.setup.execute(_DELETE_ALL)
        self._resets += 1
        if self._resets % _VACUUM_EVERY == 0:
            self.setup.execute(_VACUUM)

    # ── observing ────────────────────────────────────────────────────────────────────────────────

    def blocked(self, pids: Sequence[int]) -> set[int]:
        """The backends among `pids` that wait for a lock which an actor holds."""
        rows = self._observer.execute(_BLOCKED, [list(pids), self._actors_pids()]).fetchall()
        return {pid for (pid,) in rows}

    def _actors_pids(self) -> list[int]:
        found: list[int] = []
        for session in list(self._sessions.values()):
            if (delayed := session.delayed) is not None:
                found.append(delayed.backend_pid)
            if (pid := session.backend_pid) is not None:
                found.append(pid)
        return found

    def end_sessions(self, owner: str) -> None:
        """End the owner's sessions as the death of its process would.

        A session inside a query is terminated. For an idle one, PostgreSQL would only roll back its
        transaction, so this does the same and keeps the connection.
        """
        for session in self.sessions_of(owner):
            if session.is_executing:
                self.terminate(session)
            else:
                session.end_transaction()

    def terminate(self, session: SteppedSession) -> None:
        if session.backend_pid is not None:
            self.end_backend(session.backend_pid)

    def end_backend(self, pid: int) -> None:
        """Terminate the backend and wait until its transaction is rolled back."""
        self._observer.execute(
            "SELECT pg_terminate_backend(%s, %s)", [pid, _TERMINATION_MILLISECONDS]
        )

    def describe_jobs(self) -> str:
        """The state of every job, in a few words."""
        rows = self._observer.execute(_JOBS).fetchall()
        return " | ".join(_describe(*row) for row in rows)

    def read_state(self) -> tuple[DatabaseState, TransitionWriters]:
        writers = self.setup.execute(_READ_WRITERS).fetchall()
        return read_database_state(self.setup), TransitionWriters(dict(writers))

    def limit_facts(self) -> LimitFacts:
        """Limits as they are now; without a limit, nothing is read but that."""
        changes = self.setup.execute(_READ_LIMIT_CHANGES).fetchall()
        if not changes:
            return LimitFacts()
        [(until,)] = self.setup.execute("SELECT last_value FROM drill.event_order").fetchall()
        jobs = self.setup.execute(_READ_LIMITED_JOBS).fetchall()
        has_place, runs, in_line, parked = (
            frozenset(row[0] for row in jobs if row[column]) for column in range(1, 5)
        )
        changed = tuple(LimitChange(*row) for row in changes)
        keys = {row[0]: row[5] for row in jobs if row[5] is not None}
        return LimitFacts(changed, until, has_place, runs, in_line, parked, keys)

    def schedule_facts(self) -> ScheduleFacts:
        """The schedule after one more look of a scheduler that was not disturbed."""
        if self.setup.execute("SELECT FROM faultline.schedules").fetchone() is None:
            return ScheduleFacts()
        look_once(self.setup)
        return read_schedule_facts(self.setup)

    def unique_jobs(self) -> dict[str, UniqueFact]:
        """The jobs that were enqueued with `unique`; all of a program have one key."""
        rows = self.setup.execute(_READ_UNIQUE_JOBS).fetchall()
        return {job: UniqueFact(while_, payload_by) for job, while_, payload_by in rows}

    @property
    def server_version(self) -> str:
        return self.setup.info.parameter_status("server_version") or "unknown"


def _describe(state: str, token: int, has_expired: bool, effects: int) -> str:
    lease = ", expired" if has_expired else ""
    effect = f", {effects} effect{'s' if effects != 1 else ''}" if effects else ""
    return f"{state} (token {token}{lease}{effect})"
