"""One campaign: real workers run many jobs, a share of which is hit by a fault."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from faultline.embedded import temporary_server
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection
from faultline_drills.campaign.control_loop import FEWEST_WORKERS, ControlLoop
from faultline_drills.campaign.fault_plan import (
    KILLS_BEFORE_COMMIT,
    STALLS,
    FaultKind,
    PlannedJob,
    count_by_kind,
    plan_jobs,
)
from faultline_drills.campaign.statistics import (
    crash_recoveries,
    duplicated_jobs,
    takeovers_after_expiry,
)
from faultline_drills.clients.concurrent_sessions import ConcurrentSessions
from faultline_drills.context import DrillContext
from faultline_drills.judging.checker import DrillVerdict, Judgement, judge
from faultline_drills.judging.measures import quantile, wilson_interval
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.recording.tables import install_tables
from faultline_drills.scenario import DrillSettings
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install
from faultline_drills.workload.tasks import pay, pay_by_hand

# In a short campaign at 10 % this seed draws every kind of fault; long campaigns work with any seed.
DEFAULT_SEED = 21
CLIENTS = 50
_BARRIER_SECONDS = 30.0
PARTS = 2  # rows of each job's effect: two, so that it can be half written

OnProgress = Callable[[int, str], None]


@dataclass(frozen=True, kw_only=True)
class CampaignSettings:
    jobs: int = 160
    workers: int = 4
    fault_rate: float = 0.1
    seed: int = DEFAULT_SEED
    subject: Subject = Subject.FAULTLINE
    lease_seconds: float = 1.0
    timeout_seconds: float = 180.0

    def __post_init__(self) -> None:
        if self.workers < FEWEST_WORKERS:
            raise InvalidInput(
                f"a campaign needs {FEWEST_WORKERS} workers or more, not {self.workers}"
            )

    @property
    def drill(self) -> DrillSettings:
        """The same settings for `DrillContext`, which validates them."""
        return DrillSettings(
            seed=self.seed,
            jobs=self.jobs,
            workers=self.workers,
            fault_rate=self.fault_rate,
            lease_seconds=self.lease_seconds,
            timeout_seconds=self.timeout_seconds,
            subject=self.subject,
        )


@dataclass(frozen=True, kw_only=True)
class CampaignReport:
    settings: CampaignSettings
    postgres: str
    planned: Mapping[FaultKind, int]
    injected: Mapping[FaultKind, int]
    duplicates: int  # jobs that took effect more than once
    judgement: Judgement
    tally: Mapping[str, int]
    crash_seconds: tuple[float, ...]  # from a worker's death to its job's next claim
    takeover_seconds: tuple[float, ...]  # from the end of a lease to the job's next claim
    seconds: float

    @property
    def violations(self) -> dict[str, int]:
        """The number of findings per broken rule; the checker keeps only a few per rule."""
        if self.judgement.verdict is not DrillVerdict.INVALID:
            return {}
        return dict(Counter(finding.rule for finding in self.judgement.findings))

    def facts(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "subject": settings.subject.value,
            "jobs": settings.jobs,
            "workers": settings.workers,
            "fault_rate": settings.fault_rate,
            "seed": settings.seed,
            "lease_seconds": settings.lease_seconds,
            "self_fencing": False,
            "postgres": self.postgres,
            "verdict": self.judgement.verdict.value,
            "duplicates": self.duplicates,
            "duplicate_rate": rate_facts(self.duplicates, settings.jobs),
            "violations": self.violations,
            "missing_events": self.missing_events,
            "faults_planned": {kind.value: count for kind, count in self.planned.items()},
            "faults_injected": {kind.value: count for kind, count in self.injected.items()},
            "tally": {name: count for name, count in self.tally.items() if count},
            "crash_recovery_seconds": time_facts(self.crash_seconds),
            "stale_takeover_seconds": time_facts(self.takeover_seconds),
            "seconds": round(self.seconds, 1),
        }

    @property
    def missing_events(self) -> list[str]:
        """Required events that did not happen; with any, the campaign shows nothing."""
        return find_missing_events(self.settings.subject, self.planned, self.injected, self.tally)


def required_events(subject: Subject) -> list[str]:
    needed = ["commits", "kills", "stops", "takeovers"]
    if subject is Subject.FAULTLINE:
        needed.append("stale_rejections")  # without a fence no write is rejected
    return needed


def find_missing_events(
    subject: Subject,
    planned: Mapping[FaultKind, int],
    injected: Mapping[FaultKind, int],
    tally: Mapping[str, int],
) -> list[str]:
    """Required events that did not happen, and faults that were never injected."""
    missing = [f"{name}: none" for name in required_events(subject) if not tally.get(name)]
    return missing + [
        f"{kind.value}: {count} planned, none injected"
        for kind, count in planned.items()
        if count and not injected.get(kind)
    ]


def rate_facts(hits: int, n: int) -> dict[str, Any]:
    low, high = wilson_interval(hits, n)
    return {
        "n": n,
        "rate": round(hits / n, 5) if n else None,
        "wilson_95": [round(low, 5), round(high, 5)],
    }


def time_facts(seconds: Sequence[float]) -> dict[str, Any]:
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0} if seconds else {}
    measured = {name: round(quantile(seconds, share), 3) for name, share in shares.items()}
    return {"n": len(seconds), **measured}


def run_campaign(
    settings: CampaignSettings,
    server_url: str | None = None,
    on_progress: OnProgress = lambda done, injected: None,
) -> CampaignReport:
    """Run a campaign in a new database on this server, else on a temporary one.

    `on_progress` gets the number of ended jobs, and the fault that was just injected, if any.
    """
    began = time.monotonic()
    planned = plan_jobs(settings.seed, settings.jobs, settings.fault_rate)
    done = 0

    def count(ended: int) -> None:
        nonlocal done
        done = ended
        on_progress(done, "")

    with ExitStack() as stack:
        if server_url is None:
            server_url = stack.enter_context(temporary_server()).url
        url = stack.enter_context(scratch_database(server_url))
        install(settings.subject, url)
        drill = DrillContext(
            url,
            settings.drill,
            server=None,
            stack=stack,
            notify=lambda line: on_progress(done, line),
        )
        install_tables(drill.conn)
        version = str(drill.query("SHOW server_version")[0][0])
        clients = ConcurrentSessions(url, CLIENTS, stack, timeout_seconds=_BARRIER_SECONDS)
        loop = ControlLoop(
            drill,
            planned,
            clients=clients,
            submit=partial(_submit, drill, clients),
            on_progress=count,
        )
        loop.run()
        drill.finish_jobs()
        drill.history.mark_unknown()
        faults, tally, state = count_by_kind(planned), drill.tally(), drill.read_state()
        missing = find_missing_events(settings.subject, faults, loop.injected, tally)
        judgement = judge(
            drill.history,
            state,
            shows=required_events(settings.subject),
            missing=missing,
            broken=drill.broken_expectations,
        )
    return CampaignReport(
        settings=settings,
        postgres=version,
        planned=faults,
        injected=loop.injected,
        duplicates=len(duplicated_jobs(state)),
        judgement=judgement,
        tally=tally,
        crash_seconds=tuple(crash_recoveries(drill.history, _of(loop.jobs, KILLS_BEFORE_COMMIT))),
        takeover_seconds=tuple(takeovers_after_expiry(state, _of(loop.jobs, STALLS))),
        seconds=time.monotonic() - began,
    )


def _of(jobs: Mapping[UUID, PlannedJob], kinds: frozenset[FaultKind]) -> set[str]:
    return {str(job_id) for job_id, job in jobs.items() if job.fault in kinds}


def _submit(drill: DrillContext, clients: ConcurrentSessions, job: PlannedJob) -> UUID:
    if job.fault is FaultKind.DUPLICATE_SUBMISSION:
        return _submit_concurrently(drill, clients, job)
    # Inside `job.transaction()` the job's row is locked, so no worker could take it over: in a timeout
    # burst the handler opens its own transaction.
    task = pay_by_hand if job.fault is FaultKind.TIMEOUT_BURST else pay
    return drill.submit(task, number=job.number, parts=PARTS, plan=job.plan or None)


def _submit_concurrently(drill: DrillContext, clients: ConcurrentSessions, job: PlannedJob) -> UUID:
    """Let all clients submit the same job under the same key at once."""
    key = f"campaign-{job.number}"

    def submit(conn: Connection) -> tuple[UUID, bool]:
        operation = drill.history.invoke("clients", Verb.SUBMIT, key=key)
        enqueued = pay.options(idempotency_key=key, conn=conn).enqueue(
            number=job.number, parts=PARTS
        )
        drill.history.end(operation, Phase.OK, job=str(enqueued.job_id), key=key)
        return enqueued.job_id, enqueued.existing

    answers = clients.run_together([submit] * CLIENTS)
    new = sum(not existing for _, existing in answers)
    drill.expect(new == 1, f"{new} of {CLIENTS} submissions under {key} created a job")
    drill.inject("duplicate_submission", at_job=job.number, clients=CLIENTS)
    return answers[0][0]
