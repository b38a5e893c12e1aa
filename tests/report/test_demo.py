"""Claims about `faultline demo` as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

JOBS_WITHOUT_A_FAULT = 4  # under the seed below


def demo(*options: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "faultline", "demo", *options],
        env=os.environ | {"DATABASE_URL": url},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_race_alone_leaves_no_files(server_url: str, tmp_path: Path) -> None:
    done = demo("--no-campaign", url=server_url, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ exactly one payment" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_demo_in_which_no_fault_struck_does_not_call_anything_safe(
    server_url: str, tmp_path: Path
) -> None:
    done = demo("--jobs", str(JOBS_WITHOUT_A_FAULT), "--seed", "1", url=server_url, folder=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    summary = json.loads((tmp_path / "reports/latest/benchmark_summary.json").read_text())
    assert summary["safe_for_controlled_release_validation"] is False
    assert summary["verdict"] == "unknown"
    assert summary["faults_injected"] == {"faultline": {}, "naive": {}}
    assert summary["faultline_duplicates"] == summary["naive_duplicates"] == 0
    assert '"safe_for_controlled_release_validation": false' in done.stdout
    plots = {path.name for path in (tmp_path / "reports/latest").glob("benchmark_comparison.*")}
    assert plots == {"benchmark_comparison.png", "benchmark_comparison.svg"}
