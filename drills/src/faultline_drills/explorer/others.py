"""Everybody who is not a worker: the clock, reconcilers, operators, producers, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg

from faultline import protocol
from faultline.database import run
from faultline.errors import FaultlineError, StaleLease
from faultline.model import Claim
from faultline.reconciler.reconciler import Reconciler
from faultline_drills.explorer.play import LEASE_SECONDS, QUEUE, Play
from faultline_drills.explorer.session import Fault
from faultline_drills.explorer.worker import SteppedLink, completed
from faultline_drills.history import Phase, Verb

_EXPIRE = """
    UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()
    WHERE lease_expires_at > clock_timestamp() AND id = ANY (%s)
"""


def clock(play: Play, *, times: int = 1, only: int | None = None) -> None:
    """Time passes: the leases run out, of all jobs or of one. Whoever has locked a row is not overtaken:
    to everybody else its lease runs out when the lock is gone."""
    ids = play.job_ids if only is None else [play.job_ids[only]]

    def part() -> None:
        for _ in range(times):
            session.connection().execute(_EXPIRE, [list(ids)])

    play.add("clock", part)
    session = play.session("clock")


def reconciler(play: Play, name: str = "reconciler", *, looks: int = 1) -> None:
    """The leading reconciler's own look: survey, observe, give back."""

    def part() -> None:
        leader = Reconciler("")
        leader._link = SteppedLink(play.session(name), "reconciler")
        for _ in range(looks):
            completed(leader._look())

    play.add(name, part)


def undertaker(play: Play, worker: str) -> None:
    """A reconciler that believes a worker dead, rightly or not, and acts in a transaction of its own."""
    play.declared_dead.add(worker)

    def part() -> None:
        conn = session.connection()
        with conn.transaction():
            run(conn, protocol.reconcile(max_jobs=10, dead_workers=[worker]))

    play.add("undertaker", part)
    session = play.session("undertaker")


def operator(play: Play, *verbs: str, name: str = "operator", in_transaction: bool = False) -> None:
    """Cancels or retries the first job."""
    statements = {"cancel": protocol.cancel, "retry": protocol.retry}

    def act(verb: str) -> None:
        job = play.job_ids[0]
        number = play.history.invoke(name, Verb(verb), job=str(job))
        try:
            state = run(session.connection(), statements[verb](job))
        except FaultlineError as error:
            is_refused = error.code == "illegal_transition"
            play.history.end(number, Phase.FAIL if is_refused else Phase.INFO, error=str(error))
            if not is_refused or verb != "retry":
                raise
        else:
            play.history.end(number, Phase.OK, state=state.value)
            gate.hear(f"it is {state.value}")

    def part() -> None:
        for verb in verbs:
            if in_transaction:
                with session.connection().transaction():
                    act(verb)
            else:
                act(verb)

    gate = play.add(name, part)
    session = play.session(name)


def producer(play: Play, name: str, key: str, *, in_transaction: bool = False) -> None:
    """Submits one job under a key; in a transaction of its own it may keep others with that key waiting."""

    def submit() -> None:
        conn = session.connection()
        statement = protocol.enqueue(
            "explored", {"parts": 1}, queue=QUEUE, priority=5, max_attempts=5, idempotency_key=key
        )
        number = play.history.invoke(name, Verb.SUBMIT, key=key)
        if in_transaction:
            with conn.transaction():
                queued = run(conn, statement)
        else:
            queued = run(conn, statement)
        play.history.end(number, Phase.OK, job=str(queued.job_id), key=key)
        gate.hear("was there before" if queued.existing else "queued")

    gate = play.add(name, submit)
    session = play.session(name)


def bare_client(
    play: Play, name: str, *, act: Callable[[psycopg.Connection[object], Claim], None] | None = None
) -> None:
    """Anybody with psql: claims inside a transaction of its own, then commits inside another."""

    def part() -> None:
        conn = session.connection()
        number = play.history.invoke(name, Verb.CLAIM)
        with conn.transaction():
            claims = run(
                conn,
                protocol.claim(name, [QUEUE], batch_size=1, lease_seconds=LEASE_SECONDS),
            )
        if not claims:
            play.history.end(number, Phase.FAIL)
            gate.hear("nothing")
            return
        claim = claims[0]
        play.history.end(number, Phase.OK, job=str(claim.job_id), token=claim.fencing_token)
        gate.hear(f"token {claim.fencing_token}")
        commit_by_hand(play, name, claim)

    gate = play.add(name, part)
    session = play.session(name)


def commit_by_hand(play: Play, name: str, claim: Claim, *, times: int = 1) -> None:
    """The effect and the ledger entry in one transaction, sent again and again if it is told so."""
    session = play.session(name)
    gate = play.gate_of(name)
    gate.token = claim.fencing_token
    for _ in range(times):
        conn = session.connection()
        job, token = str(claim.job_id), claim.fencing_token
        number = play.history.invoke(name, Verb.ATTEMPT, job=job, token=token)
        try:
            with conn.transaction():
                conn.execute(
                    "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [job, token]
                )
                run(conn, protocol.commit(claim))
        except StaleLease as error:
            play.counts["stale_rejections"] += 1
            if error.reason != "already_committed":  # by its own earlier entry
                play.history.end(number, Phase.FAIL, exit_reason="stale")
        else:
            play.history.end(number, Phase.OK)
            gate.hear("committed")


def repeater(play: Play, name: str, claim: Claim, *, times: int = 2) -> None:
    """A client that sends its commit again and again, whatever it was told."""
    play.add(name, lambda: commit_by_hand(play, name, claim, times=times))
    play.session(name)


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────


def killer(play: Play, victims: Sequence[str]) -> None:
    """SIGKILL for the first of the victims; its sessions end with it. With more than one name the
    rest belong to the same process."""

    def part() -> None:
        gate.wait_for_turn(f"SIGKILL for {victims[0]}", None)
        play.counts["kills"] += not play.actor(victims[0]).has_ended
        for victim in victims:
            play.gate_of(victim).is_doomed = True
        for victim in victims:
            play.stage.end_sessions(victim)

    gate = play.add("killer", part)


def cutter(play: Play, victim: str) -> None:
    """An administrator ends the victim's session; the victim's process goes on."""

    def part() -> None:
        gate.wait_for_turn(f"ends the session of {victim}", None)
        play.counts["kills"] += not play.actor(victim).has_ended
        play.stage.terminate(play.stage.session(victim, "main"))

    gate = play.add("cutter", part)


def cutter_of_the_late(play: Play, victim: str) -> None:
    """An administrator ends a session whose client is gone, before what it sent last arrives."""
    session = play.session(victim)

    def part() -> None:
        gate.wait_for_turn(f"ends the session that {victim} has lost", None)
        if session.letter is not None:
            play.stage.end_backend(session.letter.backend_pid)

    gate = play.add("cutter", part, lambda: session.letter is not None)


def network(
    play: Play, victim: str, fault: Fault, *, at: str | None = None, purpose: str = "main"
) -> None:
    """Loses the answer to one round trip of the victim's: to the step that is named, or to whichever
    comes next when it takes its turn. What it holds back is delivered at a later turn."""

    def strike() -> None:
        gate.wait_for_turn(f"will lose the next answer to {victim}", None)
        session.fault = fault

    def deliver() -> None:
        late.wait_for_turn("delivers what was held back", None)
        letter = session.letter
        if letter is not None:
            late.backend_pid = letter.backend_pid
            letter.deliver()
            session.letter = None

    session = play.session(victim, purpose)
    if at is None:
        gate = play.add("network", strike)
    else:
        session.fault, session.fault_at = fault, at
    if fault is Fault.DELIVERS_LATE:
        late = play.add("network", deliver, lambda: session.letter is not None)
