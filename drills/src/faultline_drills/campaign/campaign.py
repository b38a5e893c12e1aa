"""One campaign: many jobs, real workers, and a share of the jobs struck by a fault; then a count."""

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
from faultline_drills.judging.checker import Judgement, Verdict, judge
from faultline_drills.judging.measures import quantile, wilson_interval
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.recording.tables import install_tables
from faultline_drills.scenario import DrillSettings
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install
from faultline_drills.workload.tasks import pay, pay_by_hand

# In a short campaign at 10 % this one strikes with each kind of fault; any other will do in a long one.
DEFAULT_SEED = 21
CROWD_SIZE = 50
_GATHERING_SECONDS = 30.0
PARTS = 2  # rows of each job's effect: one row could not be half written

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
            raise InvalidInput(f"a campaign needs {FEWEST_WORKERS} workers or more")

    @property
    def drill(self) -> DrillSettings:
        """The same as the drill wants it; it refuses what makes no sense."""
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
    struck: Mapping[FaultKind, int]
    duplicates: int  # jobs that took effect more than once
    judgement: Judgement
    tally: Mapping[str, int]
    crash_seconds: tuple[float, ...]  # from a worker's death to its job's next claim
    takeover_seconds: tuple[float, ...]  # from the end of a lease to the job's next claim
    seconds: float

    @property
    def violations(self) -> dict[str, int]:
        """Pieces of evidence by broken rule; at most a few per rule are kept."""
        if self.judgement.verdict is not Verdict.INVALID:
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
            "nothing_shown": self.nothing_shown,
            "faults_planned": {kind.value: count for kind, count in self.planned.items()},
            "faults_injected": {kind.value: count for kind, count in self.struck.items()},
            "tally": {name: count for name, count in self.tally.items() if count},
            "crash_recovery_seconds": time_facts(self.crash_seconds),
            "stale_takeover_seconds": time_facts(self.takeover_seconds),
            "seconds": round(self.seconds, 1),
        }

    @property
    def nothing_shown(self) -> list[str]:
        """What this campaign was to bring about and did not: while there is any, it shows nothing."""
        return shortfalls(self.settings.subject, self.planned, self.struck, self.tally)


def to_be_shown(subject: Subject) -> list[str]:
    needed = ["commits", "kills", "stops", "takeovers"]
    if subject is Subject.FAULTLINE:
        needed.append("stale_rejections")  # without a fence there is nobody to refuse
    return needed


def shortfalls(
    subject: Subject,
    planned: Mapping[FaultKind, int],
    struck: Mapping[FaultKind, int],
    tally: Mapping[str, int],
) -> list[str]:
    """What had to happen and did not."""
    missing = [f"{name}: none" for name in to_be_shown(subject) if not tally.get(name)]
    return missing + [
        f"{kind.value}: {count} planned, none struck"
        for kind, count in planned.items()
        if count and not struck.get(kind)
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
    """Run it in a database of its own on the server at `server_url`, else on a server of its own.

    `on_progress` is told how many jobs have ended, and what was just injected, if anything.
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
        crowd = ConcurrentSessions(url, CROWD_SIZE, stack, timeout_seconds=_GATHERING_SECONDS)
        loop = ControlLoop(
            drill,
            planned,
            crowd=crowd,
            submit=partial(_submit, drill, crowd),
            on_progress=count,
        )
        loop.run()
        drill.finish_jobs()
        drill.history.mark_unknown()
        faults, tally, world = count_by_kind(planned), drill.tally(), drill.read_state()
        missing = shortfalls(settings.subject, faults, loop.struck, tally)
        judgement = judge(
            drill.history,
            world,
            shows=to_be_shown(settings.subject),
            missing=missing,
            broken=drill.broken_expectations,
        )
    return CampaignReport(
        settings=settings,
        postgres=version,
        planned=faults,
        struck=loop.struck,
        duplicates=len(duplicated_jobs(world)),
        judgement=judgement,
        tally=tally,
        crash_seconds=tuple(crash_recoveries(drill.history, _of(loop.jobs, KILLS_BEFORE_COMMIT))),
        takeover_seconds=tuple(takeovers_after_expiry(world, _of(loop.jobs, STALLS))),
        seconds=time.monotonic() - began,
    )


def _of(jobs: Mapping[UUID, PlannedJob], kinds: frozenset[FaultKind]) -> set[str]:
    return {str(job_id) for job_id, job in jobs.items() if job.fault in kinds}


def _submit(drill: DrillContext, crowd: ConcurrentSessions, job: PlannedJob) -> UUID:
    if job.fault is FaultKind.DUPLICATE_SUBMISSION:
        return _submit_by_all(drill, crowd, job)
    # In the midst of a transaction that holds the job nobody could take it over: the burst strikes
    # handlers that own their transaction.
    task = pay_by_hand if job.fault is FaultKind.TIMEOUT_BURST else pay
    return drill.submit(task, number=job.number, parts=PARTS, plan=job.plan or None)


def _submit_by_all(drill: DrillContext, crowd: ConcurrentSessions, job: PlannedJob) -> UUID:
    """Everybody submits the same job under the same key, at once."""
    key = f"campaign-{job.number}"

    def ask(conn: Connection) -> tuple[UUID, bool]:
        operation = drill.history.invoke("crowd", Verb.SUBMIT, key=key)
        enqueued = pay.enqueue(number=job.number, parts=PARTS, idempotency_key=key, conn=conn)
        drill.history.end(operation, Phase.OK, job=str(enqueued.job_id), key=key)
        return enqueued.job_id, enqueued.existing

    answers = crowd.run_together([ask] * CROWD_SIZE)
    new = sum(not existing for _, existing in answers)
    drill.expect(new == 1, f"{new} of {CROWD_SIZE} submissions under {key} made a job")
    drill.inject("duplicate_submission", at_job=job.number, clients=CROWD_SIZE)
    return answers[0][0]
