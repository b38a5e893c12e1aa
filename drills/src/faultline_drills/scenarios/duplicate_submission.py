"""Fifty producers submit the same job at once under one idempotency key.

Users click twice, proxies repeat requests, cron jobs overlap. One submission must create the job
and the others must get its id, none an error. A different payload under the same key must be
refused, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from faultline.errors import FaultlineError, IdempotencyConflict
from faultline.model import Enqueued
from faultline.postgres.sessions import Connection
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

PRODUCERS = 50
Answer = Enqueued | FaultlineError | psycopg.Error


@scenario(shows=("duplicates", "conflicts", "commits"))
def duplicate_submission(drill: DrillContext) -> None:
    for _ in range(drill.settings.workers):
        drill.worker()
    for number in range(max(1, drill.settings.jobs // 3)):
        _same_for_all(drill, f"order-{number}", number)
    _two_kinds_at_once(drill, "contested")
    drill.wait_until(
        lambda: not drill.query("SELECT FROM faultline.jobs WHERE state <> 'succeeded'"),
        "the end of all jobs",
    )


def _same_for_all(drill: DrillContext, key: str, number: int) -> None:
    """All submit the same payload; then one submits a different one."""
    answers = run_concurrently(
        drill, [_submission(drill, key, number, who) for who in range(PRODUCERS)]
    )
    _note_answers(drill, key, answers)
    made = [answer for answer in answers if isinstance(answer, Enqueued)]
    drill.expect(len(made) == PRODUCERS, f"{key}: {len(made)} of {PRODUCERS} were accepted")
    created = sum(not each.existing for each in made)
    drill.expect(
        created == 1,
        f"{key}: {created} submissions created a job",
    )
    drill.expect(
        len({each.job_id for each in made}) == 1, f"{key}: the producers got different job ids"
    )
    late = run_concurrently(drill, [_submission(drill, key, number + 1000, PRODUCERS)])
    _note_answers(drill, key, late)
    drill.expect(
        isinstance(late[0], IdempotencyConflict), f"{key}: a different payload was not refused"
    )


def _two_kinds_at_once(drill: DrillContext, key: str) -> None:
    """Two payloads under one key at once: the first decides which one is accepted."""
    acts = [_submission(drill, key, who % 2, who) for who in range(PRODUCERS)]
    answers = run_concurrently(drill, acts)
    _note_answers(drill, key, answers)
    accepted = {who % 2 for who, answer in enumerate(answers) if isinstance(answer, Enqueued)}
    refused = {who % 2 for who, each in enumerate(answers) if isinstance(each, IdempotencyConflict)}
    drill.expect(len(accepted) == 1, f"{key}: payloads {accepted} were accepted")
    drill.expect(
        not accepted & refused, f"{key}: payload {accepted & refused} was both accepted and refused"
    )


def _submission(
    drill: DrillContext, key: str, number: int, who: int
) -> Callable[[Connection], Answer]:
    def submit(conn: Connection) -> Answer:
        operation = drill.history.invoke(f"producer-{who}", Verb.SUBMIT, key=key)
        try:
            answer = pay.options(idempotency_key=key, conn=conn).enqueue(number=number)
        except IdempotencyConflict as conflict:
            drill.history.end(operation, Phase.FAIL, key=key)
            return conflict
        except (psycopg.Error, FaultlineError) as error:
            drill.history.end(operation, Phase.INFO, key=key)
            drill.expect(False, f"{key}: producer {who} got {error!r}")
            return error
        drill.history.end(operation, Phase.OK, job=str(answer.job_id), key=key)
        return answer

    return submit


def _note_answers(drill: DrillContext, key: str, answers: list[Answer]) -> None:
    for answer in answers:
        if isinstance(answer, IdempotencyConflict):
            drill.inject("conflict", key)
        elif isinstance(answer, Enqueued) and answer.existing:
            drill.inject("duplicate", key)
