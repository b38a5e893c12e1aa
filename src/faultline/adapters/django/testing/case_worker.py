"""Runs a job inside of a TestCase's transaction, on the test's own connection."""

from __future__ import annotations

from typing import Any, NoReturn, cast

from asgiref.sync import async_to_sync
from django.db import connections

from faultline.adapters.django.application import DjangoFaultline
from faultline.adapters.django.testing.case_connection import CaseConnection
from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import InvalidInput, NotCommitted, Reject, StaleLease
from faultline.handler_errors import describe
from faultline.job import Job
from faultline.model import Claim, CommitPhase, JobState
from faultline.postgres.driver import TransactionStatus
from faultline.postgres.sessions import AsyncPool
from faultline.results import encode_result, result_of
from faultline.retry_control import Snooze
from faultline.retry_policy import request_of
from faultline.statements import protocol, snoozes
from faultline.statements.statement import Statement
from faultline.testing import Attempted, Outcome

LEASE_SECONDS = 3_600.0
WORKER = "django testcase"


class TestLease:
    """The lease of an attempt that nothing else in the process can take."""

    __test__ = False  # for pytest, which collects classes of this name
    lease_seconds = LEASE_SECONDS
    is_lost = False

    def remaining_seconds(self) -> float:
        return LEASE_SECONDS


class NoPool:
    """Replaces the worker's pools: their connections would not see the test's rows."""

    async def getconn(self) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise InvalidInput(
        "job.transaction() uses a connection of the worker, which does not see a TestCase's transaction",
        hint="write with job.atomic(), or test with a TransactionTestCase",
    )


class CaseWorker:
    """Claims and runs due jobs of an application, one after another."""

    def __init__(self, app: DjangoFaultline, queues: list[str]) -> None:
        self._app = app
        self._queues = queues
        self._wrapper = connections[app.alias]
        self._conn = CaseConnection(self._wrapper)

    def claim(self) -> Claim | None:
        statement = protocol.claim(WORKER, self._queues, batch_size=1, lease_seconds=LEASE_SECONDS)
        claims = self._conn.run(statement)
        return claims[0] if claims else None

    def run(self, claim: Claim) -> Attempted:
        attempt = AttemptTransactions(claim, TestLease())
        task = self._app.find_task(claim.task)
        if task.settings.batch is not None:
            raise InvalidInput(
                f"{task.name} has a batch handler, which a TestCase cannot run",
                hint="test it in a TransactionTestCase, with faultline.testing.run_until_idle",
            )
        pool = cast(AsyncPool, NoPool()) if task.is_async else None
        job = Job(claim, TestLease(), _refuse, pool, transactions=attempt)
        before = self._wrapper.savepoint()
        value, error = None, None
        try:
            arguments = task.arguments(claim.payload_json)
            if task.is_async:
                value = async_to_sync(task.attempt_async)(job, **arguments)
            else:
                value = task.attempt(job, **arguments)
        except Exception as raised:
            error = request_of(raised)
        if (
            self._is_broken and before is not None
        ):  # by a failed statement outside of any block of the handler
            self._wrapper.savepoint_rollback(before)
        return self._ended(claim, attempt, job, value, error)

    @property
    def _is_broken(self) -> bool:
        opened: Any = self._wrapper.connection
        return bool(opened.info.transaction_status == TransactionStatus.INERROR)

    def _ended(
        self,
        claim: Claim,
        attempt: AttemptTransactions,
        job: Job,
        value: Any,
        error: Exception | None,
    ) -> Attempted:
        """Write the outcome, as the worker does."""
        if attempt.refusal is not None:
            return self._attempted(claim, Outcome.STALE, error=error or attempt.refusal)
        if attempt.phase is not CommitPhase.UNCOMMITTED and self._conn.run(
            protocol.in_ledger(claim)
        ):
            return self._attempted(claim, Outcome.SUCCEEDED, error=error)
        if error is None:
            error = attempt.not_committed
        if error is None and attempt.phase is not CommitPhase.UNCOMMITTED:
            error = NotCommitted("the transaction with job.commit(connection) was rolled back")
        if error is None:
            try:
                result = encode_result(result_of(job.result, value))
                self._conn.allow_entry(claim.lease)
                self._conn.run(protocol.commit(claim, result=result))
                return self._attempted(claim, Outcome.SUCCEEDED)
            except (InvalidInput, StaleLease) as refused:
                error = refused
        if isinstance(error, Snooze):
            self._conn.run(
                snoozes.snooze(claim, seconds=error.seconds, until=error.until, reason=error.reason)
            )
            return self._attempted(claim, Outcome.SNOOZED, error=error)
        verdict = self._conn.run(self._failure(claim, error))
        is_final = verdict.state is JobState.FAILED
        return self._attempted(claim, Outcome.FAILED if is_final else Outcome.RETRYING, error=error)

    def _failure(self, claim: Claim, error: Exception) -> Statement[protocol.FailVerdict]:
        policy = self._app.find_task(claim.task).settings.retry
        delay, gives_up = policy.decide(error, claim.attempt)
        reason = "rejected" if isinstance(error, Reject) else "gave_up" if gives_up else None
        return protocol.fail(claim, error=describe(error), retry_seconds=delay, reason=reason)

    def _attempted(
        self, claim: Claim, outcome: Outcome, *, error: Exception | None = None
    ) -> Attempted:
        record = self._app.get(claim.job_id)
        return Attempted(
            claim.job_id,
            claim.task,
            claim.attempt,
            claim.fencing_token,
            outcome,
            None if error is None else describe(error),
            error,
            record.result,
        )
