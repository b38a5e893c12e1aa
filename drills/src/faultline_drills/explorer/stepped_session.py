"""A real session whose every round trip has to be let through, and may meet with a fault.

It is an ordinary connection of the library's. Only the place where the driver waits for the server is
replaced, so whatever code uses it runs unmodified, and nothing that it sends is missed.
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
    """What the network does to the next round trip. Either way the client sees a lost connection."""

    LOSE_REPLY = auto()  # it is carried out
    DELIVER_LATE = auto()  # it is carried out when the network gets round to it


class LostConnection(psycopg.OperationalError):
    """What a client sees when its connection breaks."""


class DelayedRoundTrip:
    """A round trip that the network still has to deliver."""

    def __init__(self, conn: Connection, sending: Any) -> None:
        self.backend_pid = conn.info.backend_pid
        self._conn = conn
        self._sending = sending

    def deliver(self) -> None:
        """Its answer goes nowhere, and neither does a refusal; then the server sees the end of it."""
        try:
            psycopg.Connection.wait(self._conn, self._sending)
        except psycopg.Error:
            pass
        finally:
            roll_back(self._conn)
            self._conn.close()


class SteppedSession:
    """One actor's connection for one purpose; it lasts over many interleavings, a permit over one."""

    def __init__(self, url: str, owner: str, purpose: str) -> None:
        self._url = url
        self._name = f"{owner} {purpose}"
        self._conn: Connection | None = None
        self.backend_pid: int | None = None  # kept, since a closed connection does not tell
        self._is_severed = False
        self.permit: StepPermit | None = None
        self.fault: RoundTripFault | None = None
        self.fault_at: str | None = None  # the step that it waits for; None: the next one
        self.delayed: DelayedRoundTrip | None = None
        self.fault_steps: list[str] = []  # the steps that a fault has met

    @property
    def is_under_way(self) -> bool:
        """Whether the server is at work on it: it waits for a lock."""
        conn = self._conn
        return conn is not None and conn.info.transaction_status is TransactionStatus.ACTIVE

    def connection(self) -> Connection:
        """Ready for use; a new one when the last one was lost."""
        if self._conn is not None and self._is_severed:
            self._renew(self._conn)
        if self._conn is None or self._conn.closed:
            self._conn = self._open()
        return self._conn

    def _open(self) -> Connection:
        conn = connect(self._url, application_name=self._name)
        conn.execute("SET synchronous_commit = off")  # no server crashes here
        self.backend_pid = conn.info.backend_pid
        conn.wait = partial(self._round_trip, conn)  # type: ignore[method-assign]
        # The library cuts a refused connection through its socket. Let it believe so: to everybody
        # else a transaction that has failed and one whose client is gone are the same.
        conn.fileno = self._sever  # type: ignore[method-assign]
        return conn

    def end_transaction(self) -> None:
        if self._conn is not None:
            roll_back(self._conn)

    def reset(self) -> None:
        """Between two interleavings, when nobody uses it."""
        self.permit = self.fault = self.fault_at = self.delayed = None
        self.fault_steps = []
        if self._conn is not None:
            self._renew(self._conn)

    def _renew(self, conn: Connection) -> None:
        """As good as a new one. A block that was killed inside has not told the driver of its end."""
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
        if conn is not self._conn:  # it was lost with a delayed; a rollback has nowhere to go
            sending.close()
            if sending.gi_code.co_name == "_exit_gen":
                return False
            raise LostConnection("the connection is lost")
        step = describe_step(sending, conn)
        if permit is None or step is None:
            return psycopg.Connection.wait(conn, sending, *limits, **named_limits)
        if self._is_severed:
            sending.close()
            raise LostConnection("the connection is lost")
        permit.wait_for_permit(step, self.backend_pid)
        fault = self._take_fault(step)
        if fault is RoundTripFault.DELIVER_LATE:
            self.delayed = DelayedRoundTrip(conn, sending)
            self._conn = self.backend_pid = None
            permit.note("the connection is lost; it is still on its way")
            raise LostConnection("the connection is lost")
        try:
            answer = psycopg.Connection.wait(conn, sending, *limits, **named_limits)
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
            permit.note("the answer is lost")
            raise LostConnection("the answer is lost")
        return answer


class SteppedSessionPool:
    """Stands where a job expects a pool."""

    def __init__(self, session: SteppedSession) -> None:
        self._session = session

    def getconn(self) -> Connection:
        return self._session.connection()

    def putconn(self, conn: Connection) -> None:
        """There is one, and it stays the session's."""


def roll_back(conn: Connection) -> None:
    """End its transaction, as the server does when a client is gone."""
    if conn.closed or conn.info.transaction_status is TransactionStatus.IDLE:
        return
    conn.pgconn.exec_(b"ROLLBACK")


def describe_error(error: psycopg.Error) -> str:
    if error.sqlstate is None:
        return "the connection is lost"
    return f"refused: {_JOB_ID.sub('', error.diag.message_primary or '')}"


_JOB_ID = re.compile(r" [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # another one at every replay
_VERB = re.compile(r"faultline\.(\w+)\(")
_WORDS = {
    "claim": "claims",
    "heartbeat": "renews its leases",
    "assert_fence": "asserts its fence",
    "open_transaction": "asserts its fence",
    "commit": "enters the ledger",
    "commit_many": "commits a batch",
    "fail": "reports a failure",
    "release": "hands the job back",
    "reconcile": "takes back what has expired",
    "cancel": "cancels",
    "retry": "retries",
    "enqueue": "enqueues",
    "record_rejection": "records the refusal",
    "vanished_workers": "surveys the workers",
}


def describe_step(sending: Any, conn: Connection) -> str | None:
    """What is about to be sent, in words; None for what nobody else could ever notice."""
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
    if query.endswith("COMMIT"):  # with the ledger entry before it, in one message
        return "COMMIT"
    if verb := _VERB.search(query):
        return _WORDS.get(verb[1], verb[1])
    if "drill.effects" in query:
        return "writes its effect"
    if "EXISTS (SELECT FROM faultline.ledger" in query:
        return "looks into the ledger"
    if "SET lease_expires_at" in query:
        return "the lease runs out"
    if "ORDER BY lease_expires_at" in query:
        return "looks at the leases"
    return " ".join(query.split())[:60]
