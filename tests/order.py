"""Runs the slow tests first, shared out among the processes of a run.

pytest-xdist gives each process a contiguous share of the tests, and lets one that is done steal from the
end of another's. So the slow tests are dealt to the beginnings of the shares, and short ones are left for the
end of a run. The lists below save time and decide nothing else: a slow test that is missing may end the run
alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

# Files with a test of many seconds, then whole folders; in both the slowest first.
FILES = (
    *("stateful/test_stateful.py", "testing/test_zombies.py", "api/test_openapi.py"),
    *("benchmarks/test_driver.py", "model/test_model.py", "testing/test_example.py"),
    *("containers/test_stack.py", "testing/test_plugin.py", "drills/test_connection_flood.py"),
    *("draining/test_signals.py", "cli/test_maximal_rows.py", "demo/test_demo.py"),
    *("monitoring/test_live.py", "kubernetes/test_processes.py", "security/test_accounts.py"),
)
FOLDERS = (
    *("drills", "explorer", "sweep", "failure_modes", "processes", "failover", "testing"),
    *("children", "embedded", "draining", "tracing", "benchmarks", "bench", "soak", "campaign"),
)


def rank(path: str) -> int | None:
    """The place of a test file among the slow ones; None for the others."""
    name = path.removeprefix("tests/")
    if name in FILES:
        return FILES.index(name)
    folder = name.partition("/")[0]
    return len(FILES) + FOLDERS.index(folder) if folder in FOLDERS else None


def dealt(paths: Sequence[str], processes: int) -> list[int]:
    """The order, as indexes, in which so many processes run the tests of these files."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    others: list[int] = []
    for index, path in enumerate(paths):
        place = rank(path)
        (others if place is None else by_rank[place]).append(index)
    slow = [index for place in sorted(by_rank) for index in by_rank[place]]
    order: list[int] = []
    left = len(paths)
    for number in range(processes):
        size = left // (processes - number)  # as xdist's worksteal divides them
        first = slow[number::processes][:size]
        rest = size - len(first)
        order += first + others[:rest]
        del others[:rest]
        left -= size
    return order + sorted(set(range(len(paths))) - set(order))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        order = dealt([item.nodeid.partition("::")[0] for item in items], processes)
        items[:] = [items[index] for index in order]
