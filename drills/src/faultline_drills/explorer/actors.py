"""The actors besides workers: clock, reconcilers, operators, clients, faults."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from faultline.errors import FaultlineError, StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.reconciler.reconciler import Reconciler
from faultline.statements import protocol
from faultline.unique import Unique
from faultline_drills.explorer.program_execution import LEASE_SECONDS, QUEUE, ProgramExecution
from faultline_drills.explorer.stepped_session import RoundTripFault
from faultline_drills.explorer.worker_actor import SteppedReconnectingSession, run_to_completion
from faultline_drills.recording.history import Phase, Verb

_EXPIRE = """
    UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()
    WHERE lease_expires_at > clock_timestamp() AND id = ANY (%s)
"""


def add_clock(execution: ProgramExecution, *, times: int = 1, only: int | None = None) -> None:
    """Expire the leases of all jobs, or of one.

    If another session has locked a job's row, its lease expires only when that lock is released.
    """
    ids = execution.job_ids if only is None else [execution.job_ids[only]]

    def act() -> None:
        for _ in range(times):
            session.connection().execute(_EXPIRE, [list(ids)])

    execution.add("clock", act)
    session = execution.session("clock")


def add_reconciler(
    execution: ProgramExecution, name: str = "reconciler", *, passes: int = 1
) -> None:
    """Run the reconciler's own pass: read workers and leases, then reconcile."""

    def act() -> None:
        leader = Reconciler("")
        leader._session = SteppedReconnectingSession(execution.session(name), "reconciler")
        for _ in range(passes):
            run_to_completion(leader._look())

    execution.add(name, act)


def add_mistaken_reconciler(execution: ProgramExecution, worker: str) -> None:
    """A reconciler that treats a worker as dead, in its own transaction."""
    execution.declared_dead.add(worker)

    def act() -> None:
        conn = session.connection()
        with conn.transaction():
            run(conn, protocol.reconcile(max_jobs=10, dead_workers=[worker]))

    execution.add("mistaken-reconciler", act)
    session = execution.session("mistaken-reconciler")


def add_operator(
    execution: ProgramExecution, *verbs: str, name: str = "operator", in_transaction: bool = False
) -> None:
    """An operator that cancels or retries the first job."""
    statements = {"cancel": protocol.cancel, "retry": protocol.retry}

    def send(verb: str) -> None:
        job = execution.job_ids[0]
        number = execution.history.invoke(name, Verb(verb), job=str(job))
        try:
            state = run(session.connection(), statements[verb](job))
        except FaultlineError as error:
            is_refused = error.code in ("illegal_transition", "unique_key_held")
            execution.history.end(
                number, Phase.FAIL if is_refused else Phase.INFO, error=str(error)
            )
            if not is_refused or verb != "retry":
                raise
        else:
            execution.history.end(number, Phase.OK, state=state.value)
            permit.note(f"the job is {state.value}")

    def act() -> None:
        for verb in verbs:
            if in_transaction:
                with session.connection().transaction():
                    send(verb)
            else:
                send(verb)

    permit = execution.add(name, act)
    session = execution.session(name)


def add_producer(
    execution: ProgramExecution, name: str, key: str, *, in_transaction: bool = False
) -> None:
    """A producer that enqueues a job under a key.

    In its own transaction it makes other producers with that key wait.
    """

    def submit() -> None:
        conn = session.connection()
        statement = protocol.enqueue(
            "explored", {"parts": 1}, queue=QUEUE, priority=5, max_attempts=5, idempotency_key=key
        )
        number = execution.history.invoke(name, Verb.SUBMIT, key=key)
        if in_transaction:
            with conn.transaction():
                queued = run(conn, statement)
        else:
            queued = run(conn, statement)
        execution.history.end(number, Phase.OK, job=str(queued.job_id), key=key)
        permit.note("existed before" if queued.existing else "queued")

    permit = execution.add(name, submit)
    session = execution.session(name)


def add_unique_producer(
    execution: ProgramExecution,
    name: str,
    unique: Unique,
    *,
    times: int = 1,
    in_transaction: bool = False,
) -> None:
    """A producer that enqueues a job under the program's one unique key."""

    def submit() -> None:
        for _ in range(times):
            conn = session.connection()
            with conn.transaction() if in_transaction else nullcontext():
                queued = execution.submit_unique(conn, name, unique)
            execution.stored(name, queued)
            permit.note(queued.outcome.value)

    permit = execution.add(name, submit)
    session = execution.session(name)


def add_sql_client(execution: ProgramExecution, name: str) -> None:
    """A psql-like client: claims in one transaction and commits in another."""

    def act() -> None:
        conn = session.connection()
        number = execution.history.invoke(name, Verb.CLAIM)
        with conn.transaction():
            claims = run(
                conn,
                protocol.claim(name, [QUEUE], batch_size=1, lease_seconds=LEASE_SECONDS),
            )
        if not claims:
            execution.history.end(number, Phase.FAIL)
            permit.note("nothing")
            return
        claim = claims[0]
        execution.history.end(number, Phase.OK, job=str(claim.job_id), token=claim.fencing_token)
        permit.note(f"token {claim.fencing_token}")
        commit_with_sql(execution, name, claim)

    permit = execution.add(name, act)
    session = execution.session(name)


def commit_with_sql(
    execution: ProgramExecution, name: str, claim: Claim, *, times: int = 1
) -> None:
    """Write the effect and the ledger entry in one transaction, `times` times over."""
    session = execution.session(name)
    permit = execution.permit_of(name)
    permit.token = claim.fencing_token
    for _ in range(times):
        conn = session.connection()
        job, token = str(claim.job_id), claim.fencing_token
        number = execution.history.invoke(name, Verb.ATTEMPT, job=job, token=token)
        try:
            with conn.transaction():
                conn.execute(
                    "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [job, token]
                )
                run(conn, protocol.commit(claim))
        except StaleLease as error:
            execution.counts["stale_rejections"] += 1
            if error.reason != "already_committed":  # by its own first commit
                execution.history.end(number, Phase.FAIL, exit_reason="stale")
        else:
            execution.history.end(number, Phase.OK)
            permit.note("committed")


def add_repeating_client(
    execution: ProgramExecution, name: str, claim: Claim, *, times: int = 2
) -> None:
    """A client that repeats its commit, whatever the reply was."""
    execution.add(name, lambda: commit_with_sql(execution, name, claim, times=times))
    execution.session(name)


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def add_killer(execution: ProgramExecution, victims: Sequence[str]) -> None:
    """Kill the process that consists of these actors, and end their sessions."""

    def act() -> None:
        permit.wait_for_permit(f"kills {victims[0]}", None)
        execution.counts["kills"] += not execution.actor(victims[0]).has_ended
        for victim in victims:
            execution.permit_of(victim).is_killed = True
        for victim in victims:
            execution.database.end_sessions(victim)

    permit = execution.add("killer", act)


def add_session_killer(execution: ProgramExecution, victim: str) -> None:
    """An administrator that terminates a session; the process continues."""

    def act() -> None:
        permit.wait_for_permit(f"terminates the session of {victim}", None)
        execution.counts["kills"] += not execution.actor(victim).has_ended
        execution.database.terminate(execution.database.session(victim, "main"))

    permit = execution.add("administrator", act)


def add_delayed_session_killer(execution: ProgramExecution, victim: str) -> None:
    """An administrator that terminates a lost session before its message arrives."""
    session = execution.session(victim)

    def act() -> None:
        permit.wait_for_permit(f"terminates the lost session of {victim}", None)
        if session.delayed is not None:
            execution.database.end_backend(session.delayed.backend_pid)

    permit = execution.add("administrator", act, lambda: session.delayed is not None)


def add_network_fault(
    execution: ProgramExecution,
    victim: str,
    fault: RoundTripFault,
    *,
    at: str | None = None,
    purpose: str = "main",
) -> None:
    """A network that loses the connection in one round trip of the victim.

    It does so at the step `at`, or at the victim's next step after the network's turn. A delayed
    message is delivered at a later turn.
    """

    def arm() -> None:
        permit.wait_for_permit(f"will lose the next reply to {victim}", None)
        session.fault = fault

    def deliver() -> None:
        late.wait_for_permit("delivers the delayed message", None)
        delayed = session.delayed
        if delayed is not None:
            late.backend_pid = delayed.backend_pid
            delayed.deliver()
            session.delayed = None

    session = execution.session(victim, purpose)
    if at is None:
        permit = execution.add("network", arm)
    else:
        session.fault, session.fault_at = fault, at
    if fault is RoundTripFault.DELIVER_LATE:
        late = execution.add("network", deliver, lambda: session.delayed is not None)
