"""The rules: each acts on the database and on the model, and compares the answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from faultline import IdempotencyConflict, StaleLease
from faultline.errors import IllegalTransition, TokenViolation
from faultline.statements import protocol, snoozes
from tests.stateful.reference import Job, Reference
from tests.stateful.system import LEASE_SECONDS, TAMPERING, WAYS_TO_COMMIT, Handle, SystemUnderTest

TOMORROW = 1
MANY = 100  # more jobs than there ever are

tasks = st.sampled_from(["charge", "charge", "once"])
workers = st.sampled_from(["ann", "bob"])
choices = st.integers(0, 4)  # of the jobs there are, in the order of their creation
days = st.sampled_from([0, 0, -1, TOMORROW])


class Machine(RuleBasedStateMachine):
    """Faultline beside its model; old handles are kept, so that stale ones are used."""

    handles = Bundle("handles")

    def __init__(self, system: SystemUnderTest) -> None:
        super().__init__()
        self.system = system
        self.model = Reference()
        self.leases_seen: set[UUID] = set()
        self.holders: dict[UUID, Handle] = {}  # the last claim of each job
        system.reset()
        system.tally["examples"] += 1

    def _count(self, what: str, times: int = 1) -> None:
        self.system.tally[what] += times

    def _pick(self, which: int, *states: str) -> tuple[UUID, Job]:
        found = [each for each in self.model.jobs.items() if each[1].state in states or not states]
        assume(found)
        return found[which % len(found)]

    def _has_running(self) -> bool:
        return any(job.state == "running" for job in self.model.jobs.values())

    # ── producers ────────────────────────────────────────────────────────────────────────────────

    @rule(
        task=tasks,
        amount=st.integers(1, 2),
        priority=st.sampled_from([5, 5, 3]),
        day=days,
        key=st.sampled_from([None, "key-1", "key-1", "key-2"]),
    )
    def enqueue(self, task: str, amount: int, priority: int, day: int, key: str | None) -> None:
        work = (task, amount)
        known = self.model.keys.get(key) if key else None
        if known and known[1] != work:
            with pytest.raises(IdempotencyConflict) as conflict:
                self._send(task, amount, priority, day, key)
            assert conflict.value.job_id == str(known[0])
            self._count("conflicts")
            return
        sent = self._send(task, amount, priority, day, key)
        if key and key in self.model.keys:
            self._count("repeated_submissions")
            assert (sent.job_id, sent.existing) == (self.model.keys[key][0], True)
        else:
            assert not sent.existing
            assert sent.job_id not in self.model.jobs
            max_attempts = self.system.tasks[task].settings.max_attempts
            self.model.jobs[sent.job_id] = Job(max_attempts, priority, self.model.moment(day))
            if key:
                self.model.keys[key] = (sent.job_id, work)

    def _send(self, task: str, amount: int, priority: int, day: int, key: str | None) -> Any:
        run_at = datetime.now(UTC) + timedelta(days=day) if day else None
        return (
            self.system.tasks[task]
            .options(priority=priority, run_at=run_at, idempotency_key=key)
            .enqueue(amount=amount)
        )

    @initialize(target=handles, tasks=st.lists(tasks, min_size=1, max_size=2))
    def begin_with_claimed_jobs(self, tasks: list[str]) -> MultipleResults[Handle]:
        for task, key in zip(tasks, ["key-1", None], strict=False):
            self.enqueue(task, amount=1, priority=5, day=0, key=key)
        return self._claim("ann", len(tasks))

    # ── workers ──────────────────────────────────────────────────────────────────────────────────

    @rule(target=handles, worker=workers, wanted=st.sampled_from([1, 1, 2, 3]))
    def claim(self, worker: str, wanted: int) -> MultipleResults[Handle]:
        return self._claim(worker, wanted)

    def _claim(self, worker: str, wanted: int) -> MultipleResults[Handle]:
        queue = ["default"]
        statement = protocol.claim(worker, queue, batch_size=wanted, lease_seconds=LEASE_SECONDS)
        claims = {claim.job_id: claim for claim in self.system.run(statement)}
        expected = self.model.claim(worker, wanted)

        assert claims.keys() == expected.keys()
        for job_id, job in expected.items():
            claim = claims[job_id]
            assert (claim.fencing_token, claim.attempt, claim.max_attempts, claim.crashes) == (
                (job.token, job.attempts, job.max_attempts, job.crashes)
            )
            assert claim.lease_id not in self.leases_seen
            self.leases_seen.add(claim.lease_id)
            job.lease_id, job.lease_seconds = claim.lease_id, LEASE_SECONDS
            self._count("takeovers", claim.fencing_token > 1)
        self._count("claims", len(claims))
        taken = {job_id: self.system.handle(claim) for job_id, claim in claims.items()}
        self.holders |= taken
        return multiple(*taken.values())

    @rule(target=handles, handle=handles, shift=st.sampled_from([0, 0, -1, 1]))
    def forge(self, handle: Handle, shift: int) -> Handle:
        """The same token under another lease, or the same lease under another token.

        The former is what a failover leaves that lost a claim and issued its token again.
        """
        claim = handle.claim
        if shift == 0:
            return self.system.handle(claim._replace(lease=str(uuid4())))
        return self.system.handle(claim._replace(fencing_token=claim.fencing_token + shift))

    @rule(handle=handles, way=st.sampled_from(WAYS_TO_COMMIT))
    def commit(self, handle: Handle, way: Callable[[SystemUnderTest, Handle], None]) -> None:
        self._commit(handle, way)

    def _commit(self, handle: Handle, way: Callable[[SystemUnderTest, Handle], None]) -> None:
        by_hand = way is SystemUnderTest.commit_by_posing_as_a_batch
        if self._is_let_through(lambda: way(self.system, handle), handle, any_reason=by_hand):
            self.model.commit(handle.lease)
            self._count("commits")

    @precondition(_has_running)
    @rule(which=choices, way=st.sampled_from(WAYS_TO_COMMIT))
    def commit_by_the_holder(
        self, which: int, way: Callable[[SystemUnderTest, Handle], None]
    ) -> None:
        job_id, _ = self._pick(which, "running")
        self._commit(self.holders[job_id], way)

    @rule(handle=handles)
    def write_and_go_on(self, handle: Handle) -> None:
        if self._is_let_through(lambda: self.system.write_and_go_on(handle), handle):
            self.model.jobs[handle.claim.job_id].effects.append(handle.claim.fencing_token)
            self._count("fenced_writes")

    @rule(handle=handles)
    def write_and_turn_back(self, handle: Handle) -> None:
        self._is_let_through(lambda: self.system.write_and_turn_back(handle), handle)

    @rule(chosen=st.lists(handles, min_size=1, max_size=4))
    def commit_many(self, chosen: list[Handle]) -> None:
        statement = protocol.commit_many([each.claim for each in chosen], [None] * len(chosen))
        verdicts = self.system.run(statement)
        violations = [self.model.violation(each.lease) for each in chosen]
        words: dict[str | None, str] = {None: "committed", "already_committed": "already_yours"}
        expected = [
            (words.get(violation, "stale"), None if violation in words else violation)
            for violation in violations
        ]
        assert [(each.outcome, each.reason) for each in verdicts] == expected
        for each, violation in zip(chosen, violations, strict=True):
            if violation is None:
                self.model.commit(each.lease, with_effect=False)
                self._count("commits")
            self._count("stale_refusals", violation is not None)

    @rule(handle=handles, day=days, reason=st.sampled_from([None, None, "rejected"]))
    def fail(self, handle: Handle, day: int, reason: str | None) -> None:
        delay_seconds = timedelta(days=day).total_seconds()
        statement = protocol.fail(
            handle.claim, error="no", retry_seconds=delay_seconds, reason=reason
        )
        if self._is_let_through(lambda: self.system.run(statement), handle, is_giving_up=True):
            self.model.fail(handle.lease, day=day, reason=reason)
            self._count("failures")

    @rule(handle=handles)
    def release(self, handle: Handle) -> None:
        statement = protocol.release(handle.claim)
        if self._is_let_through(lambda: self.system.run(statement), handle, is_giving_up=True):
            self.model.release(handle.lease)
            self._count("releases")

    @rule(handle=handles)
    def snooze(self, handle: Handle) -> None:
        seconds = timedelta(days=TOMORROW).total_seconds()
        statement = snoozes.snooze(handle.claim, seconds=seconds, until=None, reason=None)
        if self._is_let_through(lambda: self.system.run(statement), handle, is_giving_up=True):
            self.model.snooze(handle.lease, day=TOMORROW)
            self._count("snoozes")

    @rule(
        worker=workers,
        chosen=st.lists(handles, min_size=1, max_size=3, unique_by=lambda each: each.lease[0]),
        lease_seconds=st.sampled_from([LEASE_SECONDS, 2 * LEASE_SECONDS]),
    )
    def heartbeat(self, worker: str, chosen: list[Handle], lease_seconds: float) -> None:
        claims = [each.claim for each in chosen]
        statement = protocol.heartbeat(worker, claims, lease_seconds=lease_seconds)
        renewals = self.system.run(statement).renewals
        held = {each.lease[0]: self.model.may_give_up(each.lease) for each in chosen}
        assert renewals == {str(job): "renewed" if kept else "lost" for job, kept in held.items()}
        for job_id in (job_id for job_id, kept in held.items() if kept):
            self.model.renew(job_id, lease_seconds)
        self._count("renewals", sum(held.values()))

    def _is_let_through(
        self,
        act: Callable[[], object],
        handle: Handle,
        *,
        is_giving_up: bool = False,
        any_reason: bool = False,
    ) -> bool:
        """Act on both, and check that the database answers as the model does."""
        violation = self.model.violation(handle.lease)
        if is_giving_up and self.model.may_give_up(handle.lease):
            violation = None
        if violation is None:
            act()
            return True
        with pytest.raises(StaleLease) as refused:
            act()
        assert any_reason or refused.value.reason == violation
        self._count("stale_refusals")
        return False

    # ── time, recovery, operators ────────────────────────────────────────────────────────────────

    @precondition(_has_running)
    @rule(which=choices)
    def expire(self, which: int) -> None:
        job_id, job = self._pick(which, "running")
        self.system.expire(job_id)
        job.expired_at = self.model.moment()[1]
        self._count("expiries")

    @precondition(_has_running)
    @rule(target=handles, which=choices, worker=workers)
    def take_over(self, which: int, worker: str) -> MultipleResults[Handle]:
        self.expire(which)
        return self._claim(worker, MANY)

    @rule(which=choices)
    def come_due(self, which: int) -> None:
        job_id, job = self._pick(which)
        if job.due[0] == TOMORROW:
            self.system.bring_forward(job_id)
            job.due = self.model.moment()

    @rule(max_jobs=st.integers(1, 3))
    def reconcile(self, max_jobs: int) -> None:
        self._reconcile(max_jobs, frozenset())

    @rule(dead=workers)
    def reconcile_dead_worker(self, dead: str) -> None:
        self._reconcile(MANY, frozenset([dead]))

    def _reconcile(self, max_jobs: int, dead: frozenset[str]) -> None:
        statement = protocol.reconcile(max_jobs=max_jobs, dead_workers=list(dead))
        reconciled = {each.job_id for each in self.system.run(statement)}
        assert reconciled == self.model.reconcile(max_jobs, dead)
        self._count("reconciled", len(reconciled))

    @rule(which=choices)
    def cancel(self, which: int) -> None:
        job_id, _ = self._pick(which)
        assert self.system.app.cancel(job_id) == self.model.cancel(job_id)

    @rule(which=choices)
    def retry(self, which: int) -> None:
        job_id, job = self._pick(which)
        if job.state == "succeeded":
            with pytest.raises(IllegalTransition):
                self.system.app.retry(job_id)
        else:
            assert self.system.app.retry(job_id) == self.model.retry(job_id)

    @rule(which=choices)
    def tamper(self, which: int) -> None:
        job_id, _ = self._pick(which)
        for statement in TAMPERING:
            try:
                changed = self.system.tamper(statement, job_id)
            except (IllegalTransition, TokenViolation):
                self._count("tampering_refused")
            else:
                assert changed == 0, f"the database allowed {statement}"

    # ── the comparison ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def database_and_model_agree(self) -> None:
        expected = {job_id: _as_seen(job) for job_id, job in self.model.jobs.items()}
        assert self.system.seen() == expected
        self._count("comparisons")

    @invariant()
    def the_audit_finds_nothing(self) -> None:
        assert self.system.findings() == []


def _as_seen(job: Job) -> tuple[Any, ...]:
    return (
        job.state,
        job.reason,
        job.attempts,
        job.crashes,
        job.token,
        job.lease_id,
        job.owner if job.state == "running" else None,
        job.lease_seconds,
        job.expired_at is not None,
        job.due[0] <= 0,
        [f"({job.entry[0]},{job.entry[1]})"] if job.entry else [],
        sorted(job.effects),
    )
