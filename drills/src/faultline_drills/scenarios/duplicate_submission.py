"""Fifty producers submit the same thing at the same moment, under one idempotency key.

They press the button twice, their proxies send the request again, their cron jobs overlap. One of
them makes the job and the others are told of it; none gets an error. Whoever sends something else
under a key that is taken is told so, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from faultline.errors import FaultlineError, IdempotencyConflict
from faultline.model import Enqueued
from faultline.postgres.sessions import Connection
from faultline_drills.arena import Arena
from faultline_drills.crowd import all_at_once
from faultline_drills.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay

CROWD = 50
Answer = Enqueued | FaultlineError | psycopg.Error


@scenario(shows=("duplicates", "conflicts", "commits"))
def duplicate_submission(arena: Arena) -> None:
    for _ in range(arena.settings.workers):
        arena.worker()
    for number in range(max(1, arena.settings.jobs // 3)):
        _same_for_all(arena, f"order-{number}", number)
    _two_kinds_at_once(arena, "contested")
    arena.wait_until(
        lambda: not arena.query("SELECT FROM faultline.jobs WHERE state <> 'succeeded'"),
        "the end of all jobs",
    )


def _same_for_all(arena: Arena, key: str, number: int) -> None:
    """All send the same; then one comes with something else."""
    answers = all_at_once(arena, [_submission(arena, key, number, who) for who in range(CROWD)])
    _note_answers(arena, key, answers)
    made = [answer for answer in answers if isinstance(answer, Enqueued)]
    arena.expect(len(made) == CROWD, f"{key}: {len(made)} of {CROWD} were accepted")
    arena.expect(sum(not each.existing for each in made) == 1, f"{key}: one of them made the job")
    arena.expect(len({each.job_id for each in made}) == 1, f"{key}: all are told of one job")
    late = all_at_once(arena, [_submission(arena, key, number + 1000, CROWD)])
    _note_answers(arena, key, late)
    arena.expect(isinstance(late[0], IdempotencyConflict), f"{key}: other work is refused")


def _two_kinds_at_once(arena: Arena, key: str) -> None:
    """Half of them send one thing and half another: the first decides which half is right."""
    acts = [_submission(arena, key, who % 2, who) for who in range(CROWD)]
    answers = all_at_once(arena, acts)
    _note_answers(arena, key, answers)
    accepted = {who % 2 for who, answer in enumerate(answers) if isinstance(answer, Enqueued)}
    refused = {who % 2 for who, each in enumerate(answers) if isinstance(each, IdempotencyConflict)}
    arena.expect(len(accepted) == 1, f"{key}: work {accepted} was accepted")
    arena.expect(not accepted & refused, f"{key}: work {accepted & refused} was both")


def _submission(arena: Arena, key: str, number: int, who: int) -> Callable[[Connection], Answer]:
    def submit(conn: Connection) -> Answer:
        operation = arena.history.invoke(f"producer-{who}", Verb.SUBMIT, key=key)
        try:
            answer = pay.enqueue(number=number, idempotency_key=key, conn=conn)
        except IdempotencyConflict as conflict:
            arena.history.end(operation, Phase.FAIL, key=key)
            return conflict
        except (psycopg.Error, FaultlineError) as error:
            arena.history.end(operation, Phase.INFO, key=key)
            arena.expect(False, f"{key}: producer {who} got {error!r}")
            return error
        arena.history.end(operation, Phase.OK, job=str(answer.job_id), key=key)
        return answer

    return submit


def _note_answers(arena: Arena, key: str, answers: list[Answer]) -> None:
    for answer in answers:
        if isinstance(answer, IdempotencyConflict):
            arena.inject("conflict", key)
        elif isinstance(answer, Enqueued) and answer.existing:
            arena.inject("duplicate", key)
