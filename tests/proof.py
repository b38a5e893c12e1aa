"""Counts and prints what the run exercised; fails a run that exercised nothing.

A test that plays scenarios calls the fixture `tally`, once per kind. With `--proof fast` (`make test`) or
`--proof slow` (`make test-slow`) the totals are compared with the minima below, so that a suite which
no longer kills any worker fails.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pytest

from faultline_drills.judging.checker import DrillVerdict, Judgement

Tally = Callable[..., None]

# What each part of the suite must have brought about on Faultline itself, in all and by kind: many
# interleavings must not make up for drills that no longer run.
IN_ALL = "in all"
FAST = {
    IN_ALL: {
        "scenarios": 500,
        "kills": 10,
        "takeovers": 100,
        "stale_rejections": 100,
        "commits": 500,
    },
    "explorer interleaving": {
        "scenarios": 400,
        "takeovers": 50,
        "stale_rejections": 50,
        "kills": 5,
    },
    "drill": {"scenarios": 14, "kills": 3, "stops": 2, "takeovers": 15, "promotions": 1},
    "sweep point": {"scenarios": 2, "kills": 2},
    "stateful example": {"scenarios": 60, "takeovers": 5, "stale_rejections": 30},
    "campaign job": {"scenarios": 10, "takeovers": 1, "stale_rejections": 1},
}
SLOW = {
    IN_ALL: {
        "scenarios": 1000,
        "kills": 20,
        "takeovers": 100,
        "stale_rejections": 100,
        "commits": 500,
        "unknown_commits": 5,
    },
    "explorer interleaving": {
        "scenarios": 800,
        "takeovers": 50,
        "stale_rejections": 50,
        "kills": 10,
    },
    "drill": {
        "scenarios": 25,
        "stops": 3,
        "takeovers": 20,
        "stale_rejections": 20,
        "promotions": 5,
        "restores": 3,
    },
    "sweep point": {"scenarios": 30, "kills": 8, "takeovers": 12},
    "stateful example": {"scenarios": 200, "takeovers": 10, "stale_rejections": 100},
    "soak": {"scenarios": 1, "commits": 50, "takeovers": 1},
}
GATES = {"fast": FAST, "slow": SLOW}


class Proof:
    def __init__(self) -> None:
        self.kinds: dict[str, Counter[str]] = defaultdict(Counter)

    @property
    def totals(self) -> Counter[str]:
        """Of what was done to Faultline: the controls, and mutants, are not Faultline."""
        own = [counts for kind, counts in self.kinds.items() if "control" not in kind]
        return sum(own, Counter())

    def shortfalls(self, part: str) -> list[str]:
        """What is missing for this part of the suite, as sentences."""
        found = {**self.kinds, IN_ALL: self.totals}
        return [
            f"{name.replace('_', ' ')}, {kind}: {found.get(kind, Counter())[name]}, and {least} needed"
            for kind, gates in GATES[part].items()
            for name, least in gates.items()
            if found.get(kind, Counter())[name] < least
        ]


PROOF = pytest.StashKey[Proof]()
TRIES = 3


class Judged(Protocol):
    @property
    def judgement(self) -> Judgement: ...


Report = TypeVar("Report", bound=Judged)


def until_shown(play: Callable[[], Report]) -> Report:
    """Play until the verdict is not `unknown`, which means that no fault took effect.

    On a busy machine a race may not come about. One that never does still fails the test, and a broken
    rule is never played again.
    """
    for _ in range(TRIES):
        report = play()
        if report.judgement.verdict is not DrillVerdict.UNKNOWN:
            break
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof", choices=sorted(GATES), help="fail if this part of the suite exercised too little"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PROOF] = Proof()
    config.pluginmanager.register(_Listener(config.stash[PROOF]), "faultline-proof")


class _Listener:
    def __init__(self, proof: Proof) -> None:
        self._proof = proof

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, counted in report.user_properties:
            if name == "tally" and isinstance(counted, dict):
                self._proof.kinds[counted["kind"]].update(counted["counts"])


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Adds to the run's counts: `tally("explorer interleaving", scenarios=120)`."""

    def add(kind: str, **counts: int) -> None:
        counted: Any = {"kind": kind, "counts": counts}
        request.node.user_properties.append(("tally", counted))

    return add


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    proof = config.stash[PROOF]
    if not proof.kinds:
        return
    terminalreporter.section("what was exercised")
    for kind, counts in sorted(proof.kinds.items()):
        terminalreporter.line(_line(kind, counts))
    terminalreporter.line(_line(IN_ALL, proof.totals), bold=True)
    if part := config.getoption("--proof"):
        for shortfall in proof.shortfalls(part):
            terminalreporter.line(f"not enough {shortfall}", red=True)


def _line(kind: str, counts: Counter[str]) -> str:
    rest = ", ".join(
        f"{count} {name.replace('_', ' ')}"
        for name, count in sorted(counts.items())
        if name != "scenarios" and count
    )
    return f"{counts['scenarios']:>6}  {kind:<22} {rest}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    part = config.getoption("--proof")
    is_green = session.exitstatus == 0 and not hasattr(config, "workerinput")
    if part and is_green and config.stash[PROOF].shortfalls(part):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
