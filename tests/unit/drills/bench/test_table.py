"""The bench prints a table, its interpretation and the server's settings."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from faultline_drills.bench import (
    BenchReport,
    BenchSettings,
    MeasuredRate,
    Recommendation,
    Times,
    Trials,
)
from faultline_drills.bench.server_baseline import ServerFacts
from faultline_drills.cli.bench import print_report
from faultline_drills.provenance import provenance

DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
}
MEASUREMENTS = (
    Times("round_trip", "round trip (SELECT 1)", ((0.000123, 0.2), (0.012, 0.013))),
    MeasuredRate(
        "bulk_enqueue", "enqueue, 1,000 at a time", 150_000, (123_456.0, 100_000.0, 130_000.0)
    ),
)


def printed(**settings: str) -> str:
    report = BenchReport(
        settings=BenchSettings(),
        server=ServerFacts("18.1", DURABLE | settings),
        measurements=MEASUREMENTS,
        interpretation=["CPU-bound: [not markup] it is."],
        trials=Trials(),
        recommendations=[Recommendation("batch_size", "max_size=[100]", 100, "Because [so].")],
        seconds=60.0,
    )
    out = io.StringIO()
    origin = provenance(report.settings.command, seed=1, postgres="18.1")
    print_report(Console(file=out, width=80, soft_wrap=True), report, origin)
    return out.getvalue()


def test_each_measurement_is_one_line_of_the_table() -> None:
    lines = printed().splitlines()
    [times] = [line.split("  ") for line in lines if "round trip (SELECT 1)" in line]
    assert [cell.strip() for cell in times if cell.strip()] == [
        "round trip (SELECT 1)",
        "12.0 ms",
        "200 ms",
        "12.5 – 100",
        "4",
    ]
    [rates] = [line.split("  ") for line in lines if "enqueue, 1,000" in line]
    assert [cell.strip() for cell in rates if cell.strip()] == [
        "enqueue, 1,000 at a time",
        "123,456/s",
        "100,000 – 130,000",
        "150,000",
    ]


def test_the_report_names_command_server_and_interpretation() -> None:
    output = printed()
    assert "faultline bench --seconds 60 --workers 1" in output
    assert "PostgreSQL 18.1" in output
    assert "fsync on" in output
    assert "CPU-bound: [not markup] it is." in output
    assert "NOT DURABLE" not in output


def test_the_report_recommends_settings_with_their_reasons() -> None:
    assert "max_size=[100] Because [so]." in printed()


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_server_that_may_lose_commits_is_reported_first(name: str) -> None:
    assert printed(**{name: "off"}).startswith(f"NOT DURABLE {name} is OFF")
