"""An interleaving is reproducible, and PostgreSQL reports which actor waits."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.explorer.explorer import JudgedExecution, run_interleaving
from faultline_drills.explorer.explorer_database import ExplorerDatabase
from faultline_drills.explorer.interleaving import FollowInterleaving
from faultline_drills.explorer.program_execution import ProgramExecution
from faultline_drills.explorer.programs import PROGRAMS
from faultline_drills.explorer.search import RandomInterleaving


@pytest.fixture
def database(database_url: str) -> Iterator[ExplorerDatabase]:
    with ExplorerDatabase(database_url) as database:
        yield database


def steps_of(judged: JudgedExecution) -> list[tuple[str, str, str, str]]:
    return [(s.actor, s.action, s.result, s.jobs) for s in judged.record.steps]


@pytest.mark.parametrize(
    "program",
    ["takeover", "three-workers", "heartbeat", "retry", "batch-and-heartbeat", "late-commit"],
)
def test_the_same_interleaving_gives_the_same_run(database: ExplorerDatabase, program: str) -> None:
    for seed in range(5):
        first = run_interleaving(database, program, RandomInterleaving(seed), with_steps=True)
        again = run_interleaving(
            database, program, FollowInterleaving(first.record.interleaving), with_steps=True
        )
        assert again.record.interleaving == first.record.interleaving
        assert steps_of(again) == steps_of(first)
        assert again.record.lock_waits == first.record.lock_waits
        assert again.counts == first.counts


def test_every_round_trip_of_the_library_is_a_step(database: ExplorerDatabase) -> None:
    """No other actor could move before a round trip that is not a step."""
    judged = run_interleaving(database, "takeover", FollowInterleaving(["w1"] * 3), with_steps=True)
    steps = [step.action for step in judged.record.steps if step.actor == "w1"]
    assert steps == ["checks the fence", "writes its effect", "COMMIT"]


def test_an_actor_that_waits_for_a_lock_continues_when_it_is_free(
    database: ExplorerDatabase,
) -> None:
    holds_the_row = ["w1", "w1", "w1"]  # BEGIN, its effect, its entry in the ledger
    skips = run_interleaving(
        database,
        "mistaken-for-dead",
        FollowInterleaving([*holds_the_row, "mistaken-reconciler", "mistaken-reconciler"]),
    )
    assert skips.record.lock_waits == []

    cancels = ["operator", "operator", "w1"]  # BEGIN, cancel; then COMMIT
    judged = run_interleaving(
        database, "cancel", FollowInterleaving([*holds_the_row, *cancels]), with_steps=True
    )
    assert judged.record.lock_waits == [("operator", "cancels")]
    steps = [(step.actor, step.action, step.result) for step in judged.record.steps]
    assert ("operator", "cancels", "waits for a lock") in steps
    after = steps[steps.index(("w1", "COMMIT", "")) :]
    assert after[1] == ("operator", "continues", "the job is succeeded")


def test_a_blocked_actor_cannot_be_chosen(database: ExplorerDatabase) -> None:
    interleaving = ["w1", "w1", "w1", "operator", "operator", "operator", "operator", "operator"]
    judged = run_interleaving(database, "cancel", FollowInterleaving(interleaving))
    waiting = judged.record.decisions[5]
    assert "operator" not in waiting.runnable
    assert waiting.current is None  # so choosing another actor is no preemption


def test_a_deadlock_of_actors_is_reported(
    database: ExplorerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.setup.execute(
        "DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET deadlock_timeout = ''20ms''', current_database()); END $$"
    )

    def crossed(execution: ProgramExecution) -> None:
        first, second = execution.enqueue(2)

        def locks(name: str, *jobs: object) -> None:
            def act() -> None:
                conn = session.connection()
                with conn.transaction():
                    for job in jobs:
                        run(conn, protocol.cancel(job))  # type: ignore[arg-type]

            execution.add(name, act)
            session = execution.session(name)

        locks("operator", first, second)
        locks("other", second, first)

    monkeypatch.setitem(PROGRAMS, "crossed", crossed)
    judged = run_interleaving(
        database, "crossed", FollowInterleaving(["operator", "operator", "other", "other"])
    )
    assert judged.record.is_deadlocked
    assert "no_deadlock" in judged.broken_rules
    ((_, error),) = judged.record.errors
    assert isinstance(error, psycopg.errors.DeadlockDetected)


def test_a_killed_actor_takes_no_further_step(database: ExplorerDatabase) -> None:
    interleaving = ["w1", "w1", "w1", "killer"]  # claim, fence, effect
    judged = run_interleaving(database, "crash", FollowInterleaving(interleaving), with_steps=True)
    actors = [step.actor for step in judged.record.steps]
    assert "w1" not in actors[actors.index("killer") :]
    assert judged.counts["kills"] == 1
    assert judged.findings == ()


def test_an_open_transaction_does_not_outlive_its_execution(
    database: ExplorerDatabase,
) -> None:
    run_interleaving(database, "crash", FollowInterleaving(["w1", "w1", "w1", "w1", "killer"]))
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state LIKE 'idle in%'"
    )
    ProgramExecution(database)
    assert database.setup.execute(query).fetchone() == (0,)
    assert database.setup.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)
