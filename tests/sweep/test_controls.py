"""The sweep finds what is wrong: a queue without a fence, and a fence with a hole in it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline_drills.judging.checker import Verdict
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
UNFENCED = ("--no-self-fencing",)
# Work takes a good half of it: time for the first to come back while the second is at the same job.
LEASE_SECONDS = 1.5
LEAVING_SECONDS = 25  # less than a strike waits for the signal to be sent
# "It is running" is not "it is running for you".
STATE_ALONE = """
    CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid)
    RETURNS text LANGUAGE sql VOLATILE AS $$
        SELECT CASE WHEN job.state = 'succeeded' THEN 'already_committed'
                    WHEN job.state <> 'running' THEN 'not_running' END $$
"""


def struck(
    runner: PointRunner, fault: SweepFault, *, until: Callable[[PointResult], bool]
) -> PointResult:
    """Until the one who comes back is late: on a busy machine the other may not have begun by then,
    or be done already."""
    for _ in range(TRIES):
        result = runner.run(BEFORE_THE_TRANSACTION, fault)
        if result.verdict is Verdict.INVALID or until(result):
            break
    return result


def never(result: PointResult) -> bool:
    """Only what is wrong is looked for: a refusal may be another guard's, which came first."""
    return False


def is_refused(result: PointResult) -> bool:
    return result.tally.get("stale_rejections", 0) > 0


def test_without_a_fence_a_worker_that_comes_back_pays_twice(server_url: str) -> None:
    """Strike again where a busy machine made the control break other rules."""
    settings = SweepSettings(subject=Subject.NAIVE, worker_options=UNFENCED)
    for _ in range(TRIES):
        with point_runner(server_url, settings) as naive:
            result = naive.run(BEFORE_THE_TRANSACTION, SweepFault.STOP)
        broken = {finding.rule for finding in result.findings}
        if "at_most_one_effect" in broken:
            break
    assert result.verdict is Verdict.INVALID
    assert "at_most_one_effect" in broken


@pytest.mark.slow
def test_a_fence_that_looks_at_the_state_alone_is_found_out(server_url: str) -> None:
    settings = SweepSettings(
        patch=STATE_ALONE, worker_options=UNFENCED, lease_seconds=LEASE_SECONDS
    )
    with point_runner(server_url, settings) as holed:
        result = struck(holed, SweepFault.OVERLAP, until=never)
    assert result.verdict is Verdict.INVALID
    assert "effects_carry_the_current_token" in {finding.rule for finding in result.findings}


@pytest.mark.slow
def test_with_the_fence_the_same_worker_at_the_same_points_is_refused(
    server_url: str, tally: Tally
) -> None:
    with point_runner(server_url, SweepSettings(worker_options=UNFENCED)) as whole:
        results = [
            struck(whole, fault, until=is_refused)
            for fault in (SweepFault.STOP, SweepFault.OVERLAP)
        ]
    for result in results:
        assert result.verdict is Verdict.VALID, result.findings
        assert result.tally["stale_rejections"] > 0
        assert result.tally["takeovers"] > 0
    refused = sum(result.tally["stale_rejections"] for result in results)
    tally("sweep point", scenarios=len(results), stale_rejections=refused)


def test_on_the_control_a_migration_is_left_out_and_that_is_said(server_url: str) -> None:
    command = ["drill", "sweep", "--subject", "naive", "--target", "migrator", "--json"]
    ran = CliRunner().invoke(cli, ["--database-url", server_url, *command])
    report = json.loads(ran.stdout)
    assert report["struck"] == 0
    assert ["migrator" in sentence for sentence in report["left_out"]] == [True]
    assert (report["verdict"], ran.exit_code) == ("unknown", 2)


@pytest.mark.slow
def test_an_upgrade_that_loses_a_job_would_be_found_out(server_url: str) -> None:
    """The queue as it was before is compared with what is there: here somebody has taken a job out."""
    with point_runner(server_url, SweepSettings(targets=(SweepTarget.UPGRADER,))) as runner:
        point = runner.points(SweepTarget.UPGRADER)[0]
        runner._queue.pop()
        result = runner.run(point, SweepFault.KILL_BEFORE)
    assert result.verdict is Verdict.INVALID
    assert "differs in job" in result.findings[0].evidence


def test_a_process_that_has_left_before_the_kill_was_not_reached_and_did_nothing_wrong(
    swept: CachedPoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing keeps it from leaving once it has said goodbye; here the signal always comes too late."""
    kill = Migrator.kill

    def kill_too_late(self: Migrator) -> None:
        self._process.wait(LEAVING_SECONDS)
        kill(self)

    monkeypatch.setattr(Migrator, "kill", kill_too_late)
    goodbye = SweepPoint(SweepTarget.MIGRATOR, MessageLabel("migrate", "terminate"), 1)

    result = swept.run(goodbye, SweepFault.KILL_BEFORE)

    assert result.verdict is Verdict.UNKNOWN, result.findings


def test_the_command_says_how_many_points_there_are_and_what_became_of_them(
    server_url: str,
) -> None:
    command = ["drill", "sweep", "--target", "migrator", "--fault", "kill-before", "--points", "1"]
    ran = CliRunner().invoke(cli, ["--database-url", server_url, *command, "--json"])
    report = json.loads(ran.stdout)
    assert (report["verdict"], ran.exit_code) == ("valid", 0)
    assert report["struck"] == 1
    assert report["available"] == report["messages"]["migrator"] > 10
