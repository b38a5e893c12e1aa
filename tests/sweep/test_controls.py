"""The sweep finds planted bugs: a queue without a fence, and an incomplete fence."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.subjects import Subject
from faultline_drills.sweep import (
    MessageLabel,
    PointResult,
    PointRunner,
    SweepFault,
    SweepPoint,
    SweepSettings,
    SweepTarget,
    point_runner,
)
from faultline_drills.sweep.migration import Migrator
from tests.proof import TRIES, Tally
from tests.sweep.conftest import CachedPoints

BEFORE_THE_TRANSACTION = SweepPoint(SweepTarget.WORKER, MessageLabel("handler", "BEGIN"), 1)
BEFORE_THE_FIRING = SweepPoint(
    SweepTarget.SCHEDULER, MessageLabel("scheduler", "faultline.fire_schedule"), 1
)
UNFENCED = ("--no-self-fencing",)
# Work takes half of it, so that the first worker resumes while the second runs the same job.
LEASE_SECONDS = 1.5
END_SECONDS = 25  # less than the injector waits
# A fence that checks only whether the job is running, not for whom.
STATE_ALONE = """
    CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid)
    RETURNS text LANGUAGE sql VOLATILE AS $$
        SELECT CASE WHEN job.state = 'succeeded' THEN 'already_committed'
                    WHEN job.state <> 'running' THEN 'not_running' END $$
"""


def run_until(
    runner: PointRunner, fault: SweepFault, *, until: Callable[[PointResult], bool]
) -> PointResult:
    """Repeat until the resumed worker is late, which depends on the machine's load."""
    for _ in range(TRIES):
        result = runner.run(BEFORE_THE_TRANSACTION, fault)
        if result.verdict is DrillVerdict.INVALID or until(result):
            break
    return result


def never(result: PointResult) -> bool:
    """Wait for a violation only: a refusal may come from another guard."""
    return False


def is_refused(result: PointResult) -> bool:
    return result.tally.get("stale_rejections", 0) > 0


def test_without_a_fence_a_resumed_worker_pays_twice(server_url: str) -> None:
    """Repeated, since on a busy machine the control may break other rules first."""
    settings = SweepSettings(subject=Subject.NAIVE, worker_options=UNFENCED)
    for _ in range(TRIES):
        with point_runner(server_url, settings) as naive:
            result = naive.run(BEFORE_THE_TRANSACTION, SweepFault.STOP)
        broken = {finding.rule for finding in result.findings}
        if "at_most_one_effect" in broken:
            break
    assert result.verdict is DrillVerdict.INVALID
    assert "at_most_one_effect" in broken


@pytest.mark.slow
def test_a_fence_that_checks_the_state_alone_is_found_invalid(server_url: str) -> None:
    settings = SweepSettings(
        patch=STATE_ALONE, worker_options=UNFENCED, lease_seconds=LEASE_SECONDS
    )
    with point_runner(server_url, settings) as holed:
        result = run_until(holed, SweepFault.OVERLAP, until=never)
    assert result.verdict is DrillVerdict.INVALID
    assert "effects_carry_the_current_token" in {finding.rule for finding in result.findings}


@pytest.mark.slow
def test_with_the_fence_the_same_worker_is_refused_at_the_same_points(
    server_url: str, tally: Tally
) -> None:
    with point_runner(server_url, SweepSettings(worker_options=UNFENCED)) as whole:
        results = [
            run_until(whole, fault, until=is_refused)
            for fault in (SweepFault.STOP, SweepFault.OVERLAP)
        ]
    for result in results:
        assert result.verdict is DrillVerdict.VALID, result.findings
        assert result.tally["stale_rejections"] > 0
        assert result.tally["takeovers"] > 0
    refused = sum(result.tally["stale_rejections"] for result in results)
    tally("sweep point", scenarios=len(results), stale_rejections=refused)


@pytest.mark.slow
def test_without_its_keys_a_resumed_scheduler_fires_a_second_time(server_url: str) -> None:
    """Repeated, since on a busy machine the stopped scheduler may not be late."""
    targets = (SweepTarget.SCHEDULER,)
    for _ in range(TRIES):
        with point_runner(
            server_url, SweepSettings(targets=targets, subject=Subject.NAIVE)
        ) as naive:
            result = naive.run(BEFORE_THE_FIRING, SweepFault.STOP)
        if result.verdict is DrillVerdict.INVALID:
            break
    assert result.verdict is DrillVerdict.INVALID
    assert "schedule-0 fired 6 times, not 3" in str(result.findings)


@pytest.mark.slow
def test_with_them_the_same_scheduler_does_nothing(swept: CachedPoints) -> None:
    result = swept.run(BEFORE_THE_FIRING, SweepFault.STOP)
    assert result.verdict is DrillVerdict.VALID, result.findings
    assert result.tally["stops"] == 1


def test_a_sweep_of_the_control_leaves_migrations_out_and_says_so(server_url: str) -> None:
    command = ["drill", "sweep", "--subject", "naive", "--target", "migrator", "--json"]
    ran = CliRunner().invoke(cli, ["--database-url", server_url, *command])
    report = json.loads(ran.stdout)
    assert report["struck"] == 0
    assert ["migrator" in sentence for sentence in report["left_out"]] == [True]
    assert (report["verdict"], ran.exit_code) == ("unknown", 2)


@pytest.mark.slow
def test_an_upgrade_that_loses_a_job_is_found_invalid(server_url: str) -> None:
    """The queue is compared with its state before, from which the test removes a job."""
    with point_runner(server_url, SweepSettings(targets=(SweepTarget.UPGRADER,))) as runner:
        point = runner.points(SweepTarget.UPGRADER)[0]
        runner._queue.pop()
        result = runner.run(point, SweepFault.KILL_BEFORE)
    assert result.verdict is DrillVerdict.INVALID
    assert "differs in job" in result.findings[0].evidence


def test_a_process_that_ended_before_the_kill_counts_as_not_reached(
    swept: CachedPoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may end after its last message; here the signal always comes too late."""
    kill = Migrator.kill

    def kill_too_late(self: Migrator) -> None:
        self._process.wait(END_SECONDS)
        kill(self)

    monkeypatch.setattr(Migrator, "kill", kill_too_late)
    last_message = SweepPoint(SweepTarget.MIGRATOR, MessageLabel("migrate", "terminate"), 1)

    result = swept.run(last_message, SweepFault.KILL_BEFORE)

    assert result.verdict is DrillVerdict.UNKNOWN, result.findings


def test_the_command_reports_the_number_of_points_and_their_results(
    server_url: str,
) -> None:
    command = ["drill", "sweep", "--target", "migrator", "--fault", "kill-before", "--points", "1"]
    ran = CliRunner().invoke(cli, ["--database-url", server_url, *command, "--json"])
    report = json.loads(ran.stdout)
    assert (report["verdict"], ran.exit_code) == ("valid", 0)
    assert report["struck"] == 1
    assert report["available"] == report["messages"]["migrator"] > 10
