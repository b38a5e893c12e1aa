"""Every worker is asked to leave, one after the other, and replaced, while jobs flow.

A deploy is no failure. A worker that is asked to leave claims nothing more, finishes what it can in
the time it has, and hands the rest back without using up an attempt. One of them does not react, as a
blocked process does not, and is killed in the end: its jobs alone are recovered, and cost an attempt.
"""

from __future__ import annotations

import signal
from uuid import UUID

from faultline.drills.arena import Arena
from faultline.drills.scenario import scenario
from faultline.drills.witness import Witness
from faultline.drills.workload import BLOCK_VARIABLE, pay

PATIENCE = ("--drain-seconds", "0.3", "--concurrency", "4")


@scenario(shows=("restarts", "kills", "released", "takeovers", "commits"))
def rolling_restart(arena: Arena) -> None:
    deaf_job = arena.submit(pay, number=0, plan={"1": "block@start"})
    deaf = arena.worker("--concurrency", "1", environment={BLOCK_VARIABLE: "60"}, name="deaf")
    arena.wait_until(lambda: bool(deaf.heard("execution_started")), "the block")

    # Two kinds: work that is done before the time is up, and work that has to be handed back.
    slow = [
        arena.submit(pay, number=number, plan={"1": "hang@start"})
        for number in range(1, 1 + arena.settings.workers)
    ]
    others = [
        arena.submit(pay, number=number, work_seconds=0.1)
        for number in range(1 + arena.settings.workers, arena.settings.jobs)
    ]
    crew = [arena.worker(*PATIENCE) for _ in range(arena.settings.workers)]
    arena.wait_until(lambda: _held(arena, slow) == len(slow), "work in everybody's hands")
    for worker in crew:
        _replace(arena, worker)
    deaf.send(signal.SIGTERM)
    arena.inject("kill", deaf.name)
    deaf.kill()
    for job in (deaf_job, *slow, *others):
        arena.wait_for_state(job, "succeeded", "failed")
    _expect_no_attempt_burned(arena, [*slow, *others])


def _held(arena: Arena, jobs: list[UUID]) -> int:
    return arena.count(
        "SELECT count(*) FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'", [jobs]
    )


def _replace(arena: Arena, worker: Witness) -> None:
    """As a rolling deploy does: the new one comes while the old one leaves."""
    arena.worker(*PATIENCE)
    arena.inject("restart", worker.name)
    worker.send(signal.SIGTERM)
    code = worker.wait(arena.settings.timeout_seconds)
    # One that is told to leave before it has begun has nothing to bring to an end.
    in_peace = code == 0 or (code == -signal.SIGTERM and not worker.heard("worker_started"))
    arena.expect(in_peace, f"{worker.name} leaves in peace, not with {code}")


def _expect_no_attempt_burned(arena: Arena, jobs: list[UUID]) -> None:
    burned = arena.query(
        "SELECT job_id, outcome FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome <> 'released'",
        [jobs],
    )
    arena.expect(not burned, f"handing back costs no attempt, but: {burned}")
    counted = arena.count(
        "SELECT coalesce(max(attempts), 0) FROM faultline.jobs WHERE id = ANY (%s)", [jobs]
    )
    arena.expect(counted == 1, f"a job that was handed back counts {counted} attempts")
