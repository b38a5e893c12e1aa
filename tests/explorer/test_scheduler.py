"""One schedule: it is the same each time, and the server says who waits."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from faultline import protocol
from faultline.database import run
from faultline_drills.explorer.explorer import Outcome, perform
from faultline_drills.explorer.play import Play
from faultline_drills.explorer.programs import PROGRAMS
from faultline_drills.explorer.schedule import Follow
from faultline_drills.explorer.search import AtRandom
from faultline_drills.explorer.stage import Stage


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    with Stage(database_url) as stage:
        yield stage


def told(outcome: Outcome) -> list[tuple[str, str, str, str]]:
    return [(s.actor, s.what, s.heard, s.rows) for s in outcome.performed.steps]


@pytest.mark.parametrize(
    "program",
    ["take-over", "three-workers", "heartbeat", "retry", "batch-and-heartbeat", "late-commit"],
)
def test_the_same_vector_gives_the_same_run(stage: Stage, program: str) -> None:
    for seed in range(5):
        first = perform(stage, program, AtRandom(seed), narrate=True)
        again = perform(stage, program, Follow(first.performed.vector), narrate=True)
        assert again.performed.vector == first.performed.vector
        assert told(again) == told(first)
        assert again.performed.waited == first.performed.waited
        assert again.counts == first.counts


def test_every_round_trip_of_the_library_is_a_step(stage: Stage) -> None:
    """A step that the library takes unseen would be one that nobody can come between."""
    outcome = perform(stage, "take-over", Follow(["w1"] * 3), narrate=True)
    steps = [step.what for step in outcome.performed.steps if step.actor == "w1"]
    assert steps == ["asserts its fence", "writes its effect", "COMMIT"]


def test_an_actor_that_waits_for_a_lock_is_seen_and_goes_on_when_it_is_free(stage: Stage) -> None:
    holds_the_row = ["w1", "w1", "w1"]  # BEGIN, its effect, its entry in the ledger
    skips = perform(stage, "believed-dead", Follow([*holds_the_row, "undertaker", "undertaker"]))
    assert skips.performed.waited == []

    cancels = ["operator", "operator", "w1"]  # BEGIN, cancel; then COMMIT
    outcome = perform(stage, "cancel", Follow([*holds_the_row, *cancels]), narrate=True)
    assert outcome.performed.waited == [("operator", "cancels")]
    steps = [(step.actor, step.what, step.heard) for step in outcome.performed.steps]
    assert ("operator", "cancels", "waits for a lock") in steps
    after = steps[steps.index(("w1", "COMMIT", "")) :]
    assert after[1] == ("operator", "goes on", "it is succeeded")


def test_a_blocked_actor_cannot_be_chosen(stage: Stage) -> None:
    vector = ["w1", "w1", "w1", "operator", "operator", "operator", "operator", "operator"]
    outcome = perform(stage, "cancel", Follow(vector))
    waiting = outcome.performed.decisions[5]
    assert "operator" not in waiting.runnable
    assert waiting.current is None  # and passing it over is no preemption


def test_actors_that_wait_for_one_another_are_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.author.execute(
        "DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET deadlock_timeout = ''20ms''', current_database()); END $$"
    )

    def crossed(play: Play) -> None:
        first, second = play.enqueue(2)

        def locks(name: str, *jobs: object) -> None:
            def part() -> None:
                conn = session.connection()
                with conn.transaction():
                    for job in jobs:
                        run(conn, protocol.cancel(job))  # type: ignore[arg-type]

            play.add(name, part)
            session = play.session(name)

        locks("operator", first, second)
        locks("other", second, first)

    monkeypatch.setitem(PROGRAMS, "crossed", crossed)
    outcome = perform(stage, "crossed", Follow(["operator", "operator", "other", "other"]))
    assert outcome.performed.is_deadlocked
    assert "nobody_waits_in_a_circle" in outcome.broken_rules
    ((_, error),) = outcome.performed.errors
    assert isinstance(error, psycopg.errors.DeadlockDetected)


def test_a_killed_actor_takes_no_further_step(stage: Stage) -> None:
    vector = ["w1", "w1", "w1", "killer"]  # claim, fence, effect
    outcome = perform(stage, "crash", Follow(vector), narrate=True)
    actors = [step.actor for step in outcome.performed.steps]
    assert "w1" not in actors[actors.index("killer") :]
    assert outcome.counts["kills"] == 1
    assert outcome.findings == ()


def test_what_an_actor_left_open_does_not_reach_the_next_schedule(stage: Stage) -> None:
    perform(stage, "crash", Follow(["w1", "w1", "w1", "w1", "killer"]))
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state LIKE 'idle in%'"
    )
    Play(stage)
    assert stage.author.execute(query).fetchone() == (0,)
    assert stage.author.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)
