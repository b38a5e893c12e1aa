"""A small real run of the benchmarks: its files, and figures from its samples."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ("faultline", "naive", "raw_sql")
REPEATS = 2

Facts = dict[str, Any]


@pytest.mark.slow
@pytest.mark.timeout(300)  # three runs of the driver, each with its own processes
def test_an_interrupted_run_keeps_its_samples_and_a_resumed_run_takes_the_rest(
    tmp_path: Path, server_url: str
) -> None:
    command = [
        *(sys.executable, "-m", "benchmarks", "run", "--peers", "", "--sections", ""),
        *("--workloads", "drain", "--repeats", str(REPEATS), "--scale", "0.002"),
        *("--seed", "5", "--database-url", server_url, "--output", str(tmp_path)),
    ]
    # If this process is paused for too long, the run has ended before the signal: try again.
    assert any(is_interrupted_after_the_first_sample(command) for _ in range(3))
    facts = json.loads((tmp_path / "performance.json").read_text())
    kept = facts["samples"]
    assert kept
    assert facts["interrupted"] is True
    assert facts["turns_left"] == len(PEERS) * REPEATS - len(kept)
    assert facts["sections"] == facts["missing_sections"] == {}  # none were requested

    another = [*command, "--scale", "0.003", "--resume"]
    refused = subprocess.run(another, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert refused.returncode == 1
    assert "other settings (scale)" in refused.stderr

    resumed = [*command, "--resume"]
    ran = subprocess.run(resumed, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    facts = json.loads((tmp_path / "performance.json").read_text())
    assert facts["interrupted"] is False
    assert facts["samples"][: len(kept)] == kept
    assert_every_peer_had_every_turn(facts)
    assert_figures_follow_from_the_samples(facts)
    assert_verdicts_follow_from_the_ratios(facts)
    assert_its_origin_is_recorded(facts)
    assert_tables_and_plots_are_written(tmp_path)


def is_interrupted_after_the_first_sample(command: list[str]) -> bool:
    environment = {**os.environ, "COLUMNS": "200"}
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    with running:
        try:
            # Each sample is printed as a line.
            assert any("jobs/s" in line for line in running.stdout)
            running.send_signal(signal.SIGTERM)
            rest = running.stdout.read()
            code = running.wait(timeout=100)
        finally:
            running.kill()
    assert code in (0, 130), rest
    assert ("with --resume" in rest) == (code == 130)
    return code == 130


def rates_of(facts: Facts, peer: str) -> dict[int, float]:
    return {
        sample["repeat"]: sample["values"]["drain"]
        for sample in facts["samples"]
        if sample["peer"] == peer
    }


def assert_every_peer_had_every_turn(facts: Facts) -> None:
    assert [sample["problem"] for sample in facts["samples"] if sample["problem"]] == []
    for peer in PEERS:
        assert sorted(rates_of(facts, peer)) == list(range(REPEATS))
    assert len(facts["samples"]) == len(PEERS) * REPEATS
    for sample in facts["samples"]:
        assert sample["values"]["drain"] == pytest.approx(sample["jobs"] / sample["seconds"])


def assert_figures_follow_from_the_samples(facts: Facts) -> None:
    figures = facts["figures"]["drain"]
    for peer in PEERS:
        rates = list(rates_of(facts, peer).values())
        median = statistics.median(rates)
        assert figures["peers"][peer]["n"] == REPEATS
        assert figures["peers"][peer]["median"] == pytest.approx(median)
        assert figures["peers"][peer]["spread"] == pytest.approx((max(rates) - min(rates)) / median)
    ours = rates_of(facts, "faultline")
    for peer in PEERS[1:]:
        theirs = rates_of(facts, peer)
        paired = [ours[repeat] / theirs[repeat] for repeat in range(REPEATS)]
        assert figures["ratios_to_faultline"][peer]["median"] == pytest.approx(
            statistics.median(paired)
        )


def assert_verdicts_follow_from_the_ratios(facts: Facts) -> None:
    ratios = facts["figures"]["drain"]["ratios_to_faultline"]
    judged = {row["against"]: row for row in facts["to_reach"] if row["measured"] is not None}
    for against, peer, bound in (
        ("the same SQL in a bare loop on one connection", "raw_sql", 0.8),
        ("the same worker without it, no-op jobs", "naive", 0.85),
    ):
        row = judged.pop(against)
        assert row["measured"] == pytest.approx(ratios[peer]["median"])
        assert row["reached"] == (row["measured"] >= bound)
        if not row["reached"]:
            assert row["missed_by"] == pytest.approx(1 - row["measured"] / bound)
    assert judged == {}  # no other peers ran, so no other goal was judged


def assert_its_origin_is_recorded(facts: Facts) -> None:
    assert facts["seed"] == 5
    assert "benchmarks run" in facts["command"]
    assert facts["settings"]["postgres"]["server_version"] == facts["postgres"]
    assert facts["peers"]["raw_sql"]["settings"]


def assert_tables_and_plots_are_written(folder: Path) -> None:
    page = (folder / "performance.md").read_text()
    for words in ("## Goals", "## Drain of no-op jobs", "## Settings", "not measured", "left to"):
        assert words in page
    assert "![performance_drain.png](performance_drain.png)" in page
    assert (folder / "performance_drain.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "performance_drain.svg").read_text()
