"""The control of connection_flood: invalid without the metrics port's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline_drills.drill import run_drill
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.scenario import DrillSettings, all_scenarios

# sitecustomize.py of every process that the drill starts.
UNLIMITED = """
import faultline.metrics.http_server as server
server.SPARE_FILES, server.GRACE_SECONDS = 0, 1e9
server.MetricsServer.__init__.__kwdefaults__.update(connections=10**6, read_seconds=1e6)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_its_limits_a_flooded_metrics_port_leaves_jobs_no_file_descriptors(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = all_scenarios()["connection_flood"]
    if missing := scenario.missing_requirement():
        pytest.skip(missing)
    (tmp_path / "sitecustomize.py").write_text(UNLIMITED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("faultline_drills.scenarios.connection_flood._ANSWER_SECONDS", 2.0)

    report = run_drill(scenario, DrillSettings(jobs=3, timeout_seconds=30), server_url=server_url)

    assert report.judgement.verdict is DrillVerdict.INVALID
    findings = str(report.judgement.findings)
    assert "jobs do not run while every port is flooded" in findings
