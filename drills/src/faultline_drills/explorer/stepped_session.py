"""A real session that waits for a permit before every round trip.

It is one of the library's ordinary connections. Only the method in which the driver waits for the
server is replaced, so the code that uses it runs unmodified and no round trip goes unnoticed.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import partial
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from faultline.postgres.sessions import Connection, connect
from faultline_drills.explorer.step_permit import StepPermit


class RoundTripFault(Enum):
    """What happens to a round trip. In both cases the client sees a lost connection."""

    LOSE_REPLY = auto()  # PostgreSQL executes it now
    DELIVER_LATE = auto()  # PostgreSQL executes it when the network actor delivers it


class SimulatedConnectionLoss(psycopg.OperationalError):
    """The error that a client gets when its connection breaks."""


class DelayedRoundTrip:
    """A sent message that the network has not delivered yet."""

    def __init__(self, conn: Connection, sending: Any) -> None:
        self.backend_pid = conn.info.backend_pid
        self._conn = conn
        self._sending = sending

    def deliver(self) -> None:
        """Let PostgreSQL execute it, drop the reply or error, and close the connection."""
        try:
            psycopg.Connection.wait(self._conn, self._sending)
        except psycopg.Error:
            pass
        finally:
            roll_back(self._conn)
            self._conn.close()


class SteppedSession:
    """One actor's connection for one purpose, kept over many executions."""

    def __init__(self, url: str, owner: str, purpose: str) -> None:
        self._url = url
        self._name = f"{owner} {purpose}"
        self._conn: Connection | None = None
        self.backend_pid: int | None = None  # a closed connection does not tell it
        self._is_severed = False
        self.permit: StepPermit | None = None
        self.fault: RoundTripFault | None = None
        self.fault_at: str | None = None  # the step it applies to; None: the next one
        self.delayed: DelayedRoundTrip | None = None
        self.fault_steps: list[str] = []  # the steps into which a fault was injected

    @property
    def is_executing(self) -> bool:
        """Whether PostgreSQL is executing a query of this session: it waits for a lock."""
        conn = self._conn
        return conn is not None and conn.info.transaction_status is TransactionStatus.ACTIVE

    def connection(self) -> Connection:
        """An open connection; a new one if the last one was lost."""
        if self._conn is not None and self._is_severed:
            self._renew(self._conn)
        if self._conn is None or self._conn.closed:
            self._conn = self._open()
        return self._conn

    def _open(self) -> Connection:
        conn = connect(self._url, application_name=self._name)
        conn.execute("SET synchronous_commit = off")  # the server does not crash here
        self.backend_pid = conn.info.backend_pid
        conn.wait = partial(self._round_trip, conn)  # type: ignore[method-assign]
        # The library severs a refused connection through its socket. It is only marked as severed:
        # other sessions see no difference between a failed transaction and one whose client is gone.
        conn.fileno = self._sever  # type: ignore[method-assign]
        return conn

    def end_transaction(self) -> None:
        if self._conn is not None:
            roll_back(self._conn)

    def reset(self) -> None:
        """Forget the last execution: its permit, its fault and its open transaction."""
        self.permit = self.fault = self.fault_at = self.delayed = None
        self.fault_steps = []
        if self._conn is not None:
            self._renew(self._conn)

    def _renew(self, conn: Connection) -> None:
        """Make the connection usable again.

        After a kill inside a block, the driver still counts that block as open.
        """
        roll_back(conn)
        conn._num_transactions = 0
        self._is_severed = False

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()

    def _sever(self) -> int:
        self._is_severed = True
        raise OSError("severed")

    def _take_fault(self, step: str) -> RoundTripFault | None:
        if self.fault is None or self.fault_at not in (None, step):
            return None
        fault, self.fault = self.fault, None
        self.fault_steps.append(step)
        return fault

    def _round_trip(self, conn: Connection, sending: Any, *limits: Any, **named_limits: Any) -> Any:
        permit = self.permit
        if permit is not None:
            permit.raise_if_killed()
        if conn is not self._conn:  # lost with its delayed message; a rollback reaches no server
            sending.close()
            if sending.gi_code.co_name == "_exit_gen":
                return False
            raise SimulatedConnectionLoss("the connection is lost")
        step = describe_step(sending, conn)
        if permit is None or step is None:
            return psycopg.Connection.wait(conn, sending, *limits, **named_limits)
        if self._is_severed:
            sending.close()
            raise SimulatedConnectionLoss("the connection is lost")
        permit.wait_for_permit(step, self.backend_pid)
        fault = self._take_fault(step)
        if fault is RoundTripFault.DELIVER_LATE:
            self.delayed = DelayedRoundTrip(conn, sending)
            self._conn = self.backend_pid = None
            permit.note("connection lost; the message is delayed")
            raise SimulatedConnectionLoss("the connection is lost")
        try:
            reply = psycopg.Connection.wait(conn, sending, *limits, **named_limits)
        except psycopg.Error as error:
            permit.raise_if_killed()
            permit.was_deadlocked |= isinstance(error, psycopg.errors.DeadlockDetected)
            permit.note(describe_error(error))
            raise
        finally:
            permit.backend_pid = None
        if fault is RoundTripFault.LOSE_REPLY:
            self._is_severed = True
            roll_back(conn)
            permit.note("reply lost")
            raise SimulatedConnectionLoss("the reply is lost")
        return reply


class SteppedSessionPool:
    """The pool that a `Job` expects, with one connection."""

    def __init__(self, session: SteppedSession) -> None:
        self._session = session

    def getconn(self) -> Connection:
        return self._session.connection()

    def putconn(self, conn: Connection) -> None:
        """The session keeps its connection."""


def roll_back(conn: Connection) -> None:
    """Roll back the open transaction, as PostgreSQL does when a client disconnects."""
    if conn.closed or conn.info.transaction_status is TransactionStatus.IDLE:
        return
    conn.pgconn.exec_(b"ROLLBACK")


def describe_error(error: psycopg.Error) -> str:
    if error.sqlstate is None:
        return "connection lost"
    return f"refused: {_JOB_ID.sub('', error.diag.message_primary or '')}"


_JOB_ID = re.compile(r" [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # differs between replays
_VERB = re.compile(r"faultline\.(\w+)\(")
_STEP_NAMES = {
    "claim": "claims",
    "heartbeat": "renews its leases",
    "assert_fence": "checks the fence",
    "open_transaction": "checks the fence",
    "open_batch": "checks the fence",
    "commit": "writes the ledger entry",
    "commit_many": "commits a batch",
    "fail": "reports a failure",
    "release": "releases the job",
    "snooze": "snoozes the job",
    "reconcile": "reconciles expired leases",
    "cancel": "cancels",
    "retry": "retries",
    "enqueue": "enqueues",
    "record_rejection": "records the refusal",
    "vanished_workers": "reads the lost workers",
    "fire_schedule": "fires the schedule",
    "plan_schedule": "plans the schedule",
    "add_schedule": "changes the schedule",
    "run_schedule": "runs the schedule now",
    "pause_schedule": "pauses the schedule",
    "resume_schedule": "resumes the schedule",
    "set_limit": "changes the limit",
    "repair_limits": "repairs the limits",
}


def describe_step(sending: Any, conn: Connection) -> str | None:
    """The message about to be sent, in words; None if no other session can notice it."""
    name, given = sending.gi_code.co_name, sending.gi_frame.f_locals
    match name:
        case "_execute_gen":
            return describe_query(str(given["query"]))
        case "_enter_gen":
            return "BEGIN"
        case "_exit_gen" if given.get("exc_val") is None:
            return "COMMIT"
        case "_exit_gen" | "_rollback_gen":
            failed = conn.info.transaction_status is not TransactionStatus.INTRANS
            return None if failed else "ROLLBACK"
        case "_commit_gen":
            return "COMMIT"
    return None if name.startswith("_set_") else name


def describe_query(query: str) -> str:
    if query.endswith("COMMIT"):  # the ledger entry and COMMIT in one message
        return "COMMIT"
    if verb := _VERB.search(query):
        return _STEP_NAMES.get(verb[1], verb[1])
    if "drill.effects" in query:
        return "writes its effect"
    if "EXISTS (SELECT FROM faultline.ledger" in query:
        return "reads the ledger"
    if "FROM faultline.schedules" in query:
        return "reads the due schedules"
    if "SET lease_expires_at" in query:
        return "expires the lease"
    if "ORDER BY lease_expires_at" in query:
        return "reads the leases"
    return " ".join(query.split())[:60]
