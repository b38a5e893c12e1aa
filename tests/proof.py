"""Counts what the run exercised, says so at its end, and turns a run red that exercised nothing.

A test that plays scenarios calls the fixture `tally`, once per kind. With `--proof` (which `make test`
gives) the totals are held against the gates below: a suite that quietly stopped killing anything would
otherwise stay green for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pytest

from faultline_drills.judging.checker import Judgement, Verdict

Tally = Callable[..., None]

# What `make test` must have brought about on Faultline itself, in all and by kind: many interleavings must
# not make up for drills that no longer run.
IN_ALL = "in all"
GATES = {
    IN_ALL: {
        "scenarios": 1500,
        "kills": 20,
        "takeovers": 100,
        "stale_rejections": 100,
        "commits": 1000,
        "unknown_commits": 5,
    },
    "explorer interleaving": {
        "scenarios": 1300,
        "takeovers": 100,
        "stale_rejections": 100,
        "kills": 20,
    },
    "drill": {
        "scenarios": 35,
        "kills": 5,
        "stops": 5,
        "takeovers": 30,
        "stale_rejections": 30,
        "promotions": 6,
        "restores": 3,
    },
    "sweep point": {"scenarios": 35, "kills": 10, "takeovers": 15},
    "stateful example": {"scenarios": 200, "takeovers": 10, "stale_rejections": 100},
    "soak": {"scenarios": 1, "commits": 50, "takeovers": 1},
    "campaign job": {"scenarios": 10, "takeovers": 1, "stale_rejections": 1},
}


class Proof:
    def __init__(self) -> None:
        self.kinds: dict[str, Counter[str]] = defaultdict(Counter)

    @property
    def totals(self) -> Counter[str]:
        """Of what was done to Faultline: the controls, and mutants, are not Faultline."""
        own = [counts for kind, counts in self.kinds.items() if "control" not in kind]
        return sum(own, Counter())

    @property
    def shortfalls(self) -> list[str]:
        found = {**self.kinds, IN_ALL: self.totals}
        return [
            f"{name.replace('_', ' ')}, {kind}: {found.get(kind, Counter())[name]}, and {least} needed"
            for kind, gates in GATES.items()
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
    """Play until something is shown: `unknown` says that a fault came to nothing, not that it was survived.

    On a busy machine a race may not come about. One that never does is still red, and a broken rule
    is never played again.
    """
    for _ in range(TRIES):
        report = play()
        if report.judgement.verdict is not Verdict.UNKNOWN:
            break
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof", action="store_true", help="hold what was exercised against the gates"
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
        for name, told in report.user_properties:
            if name == "tally" and isinstance(told, dict):
                self._proof.kinds[told["kind"]].update(told["counts"])


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """`tally("explorer interleaving", scenarios=120, takeovers=35)`: adds to what the run exercised."""

    def add(kind: str, **counts: int) -> None:
        told: Any = {"kind": kind, "counts": counts}
        request.node.user_properties.append(("tally", told))

    return add


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    proof = config.stash[PROOF]
    if not proof.kinds:
        return
    terminalreporter.section("what was exercised")
    for kind, counts in sorted(proof.kinds.items()):
        terminalreporter.line(_line(kind, counts))
    terminalreporter.line(_line(IN_ALL, proof.totals), bold=True)
    if config.getoption("--proof"):
        for shortfall in proof.shortfalls:
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
    is_held_to_it = config.getoption("--proof") and not hasattr(config, "workerinput")
    if is_held_to_it and config.stash[PROOF].shortfalls and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
