"""An error at one point is a result of that point, and does not end the sweep."""

from __future__ import annotations

import json

import psycopg
import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.errors import DatabaseUnavailable
from faultline_drills.sweep import PointResult, SweepFault, SweepPoint
from faultline_drills.sweep.migration import MigrationTrial

ERRORS = (psycopg.OperationalError("the server closed the connection"), DatabaseUnavailable("gone"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_at_one_point_is_reported_and_the_other_points_are_run(
    server_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run = MigrationTrial.run
    failed: list[SweepPoint] = []

    def fail_once(self: MigrationTrial, point: SweepPoint, fault: SweepFault) -> PointResult:
        if not failed:
            failed.append(point)
            raise error
        return run(self, point, fault)

    monkeypatch.setattr(MigrationTrial, "run", fail_once)
    command = ["drill", "sweep", "--target", "migrator", "--fault", "kill-before", "--points", "3"]
    ran = CliRunner().invoke(cli, ["--database-url", server_url, *command, "--json"])

    report = json.loads(ran.stdout)
    assert (report["verdict"], ran.exit_code) == ("unknown", 2)
    assert (report["struck"], report["errors"], report["violations"]) == (3, 1, 0)
    assert "1 of 3 points ended with an error" in report["missing"]
    (point,) = [each for each in report["points"] if each["is_error"]]
    assert point["point"] == str(failed[0])
    assert type(error).__name__ in point["findings"][0]["evidence"]
