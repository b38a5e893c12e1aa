"""`faultline demo` as users run it."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from faultline_drills.campaign import CampaignSettings
from faultline_drills.cli.demo import compare_subjects

JOBS_WITHOUT_A_FAULT = 4  # under seed 1


@pytest.mark.slow
def test_the_race_alone_leaves_no_files(server_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "faultline", "demo", "--no-campaign"],
        env=os.environ | {"DATABASE_URL": server_url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ exactly one payment" in done.stdout
    assert "✗ tries to commit under token 1: PostgreSQL refuses" in done.stdout
    assert '{"event"' not in done.stdout  # JSON is printed only with --log-only
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_demo_without_injected_faults_is_not_called_safe(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long leases: on a busy machine a short one could expire, which would count as a fault.
    lasting = functools.partial(CampaignSettings, lease_seconds=60.0)
    monkeypatch.setattr("faultline_drills.cli.demo.CampaignSettings", lasting)
    output = io.StringIO()
    code = compare_subjects(
        Console(file=output, soft_wrap=True),
        server_url,
        JOBS_WITHOUT_A_FAULT,
        seed=1,
        save_to=tmp_path,
    )
    assert code == 2
    summary = json.loads((tmp_path / "benchmark_summary.json").read_text())
    assert summary["safe_for_controlled_release_validation"] is False
    assert summary["verdict"] == "unknown"
    assert summary["faults_injected"] == {"faultline": {}, "naive": {}}
    assert summary["faultline_duplicates"] == summary["naive_duplicates"] == 0
    text = output.getvalue()
    printed = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert printed["safe_for_controlled_release_validation"] is False
    assert printed["duplicate_rate"]["naive"]["n"] == JOBS_WITHOUT_A_FAULT
    assert printed.items() <= summary.items()
    plots = {path.name for path in tmp_path.glob("benchmark_comparison.*")}
    assert plots == {"benchmark_comparison.png", "benchmark_comparison.svg"}
