"""Prints the CPU seconds of each folder of tests: `pytest --cpu`.

Wall time depends on what else the machine does, CPU time far less. A test's figure is what its process and
the processes that it started and waited for have used, fixtures included. The run's PostgreSQL serves all
tests at once, so it has a line of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

CPU = "cpu_seconds"
SPENT = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="print the CPU seconds of each folder")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu"):
        config.pluginmanager.register(_Meter(), "faultline-cpu-meter")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Report(), "faultline-cpu-report")


def used_seconds() -> float:
    """The CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class _Meter:
    """Runs in each process that runs tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[SPENT] = used_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "teardown" and SPENT in item.stash:
            report.user_properties.append((CPU, used_seconds() - item.stash[SPENT]))
        return report


class _Report:
    """Runs in the main process of pytest."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        folder = str(Path(report.nodeid.partition("::")[0]).parent)
        self._tests[folder] += 1
        self._seconds[folder] += sum(
            float(str(value)) for name, value in report.user_properties if name == CPU
        )

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        terminalreporter.section("CPU seconds")
        for folder, seconds in self._seconds.most_common():
            terminalreporter.line(f"{seconds:8.1f}  {self._tests[folder]:5} tests  {folder}")
        terminalreporter.line(
            f"{self._seconds.total():8.1f}  {self._tests.total():5} tests  in all"
        )
        if server := _server_seconds():
            terminalreporter.line(f"{server:8.1f}  the run's PostgreSQL")


def _server_seconds() -> float | None:
    """The CPU time of the run's own server: the child process that runs postgres."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            program, fields = stat.read_text().rpartition(")")[::2]
        except OSError:
            continue
        parent, *_ = fields.split()[1:]
        if program.endswith("(postgres") and int(parent) == os.getpid():
            ticks = map(int, fields.split()[11:15])
            return sum(ticks) / os.sysconf("SC_CLK_TCK")
    return None
