"""An exception that raises when it is formatted fails only its own attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from faultline import Faultline, Job, JobState, StaleLease
from faultline.errors import FaultlineError
from faultline.handler_errors import describe, make_safe, summary
from tests.running import EventTap, ended, working


def raising(kind: type[BaseException]) -> Any:
    def look(self: object, *_: object) -> Any:
        raise kind("no")

    return look


class ExitsInStr(Exception):
    __str__ = __repr__ = raising(SystemExit)


class LiesAboutItsClass(Exception):
    __class__ = property(raising(SystemExit))  # type: ignore[assignment]


class IsAnotherClass(Exception):
    __class__ = StaleLease  # type: ignore[assignment]


class EndlessCause(Exception):
    @property
    def __cause__(self) -> Any:
        return EndlessCause("and another")


class CauseThatRaises(Exception):
    __cause__ = __context__ = property(raising(KeyboardInterrupt))  # type: ignore[assignment]


class CauseThatIsNone(Exception):
    __cause__ = "a string"  # type: ignore[assignment]


class StateThatRaises(Exception):
    sqlstate = property(raising(SystemExit))


class StateThatIsAList(Exception):
    sqlstate = property(lambda self: ["40001"])


class NotesThatRaise(Exception):
    __notes__ = property(raising(SystemExit))  # type: ignore[assignment]


class Nameless(type):
    __name__ = property(raising(SystemExit))  # type: ignore[assignment]


class OfANamelessClass(Exception, metaclass=Nameless):
    pass


def cycle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def long_chain() -> Exception:
    error = ValueError("the first")
    for number in range(100_000):
        following = ValueError(str(number))
        following.__context__ = error
        error = following
    return error


def huge_group() -> Exception:
    return ExceptionGroup("huge", [ValueError("x" * 1000) for _ in range(20_000)])


def many_notes() -> Exception:
    error = ValueError("noted")
    error.__notes__ = ["note"] * 1_000_000
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "str": ExitsInStr,
    "class_that_raises": LiesAboutItsClass,
    "class_that_lies": IsAnotherClass,
    "endless_cause": EndlessCause,
    "cause_that_raises": CauseThatRaises,
    "cause_that_is_none": CauseThatIsNone,
    "sqlstate_that_raises": StateThatRaises,
    "sqlstate_that_is_a_list": StateThatIsAList,
    "notes": NotesThatRaise,
    "name": OfANamelessClass,
    "cycle": cycle,
    "long_chain": long_chain,
    "huge_group": huge_group,
    "many_notes": many_notes,
    "stale_lease": lambda: StaleLease("token_mismatch"),
    "exit_in_str_of_a_cause": lambda: _caused_by(ExitsInStr()),
}
FAMILY = (Exception, FaultlineError)


def _caused_by(cause: BaseException) -> Exception:
    error = ValueError("above")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("name", ERRORS)
def test_any_error_can_be_described_and_inspected(name: str) -> None:
    error = ERRORS[name]()
    assert 0 < len(describe(error)) <= 10_000
    assert 0 < len(summary(error)) <= 500
    tamed = make_safe(error)
    assert isinstance(tamed, FAMILY)
    assert isinstance(str(tamed), str)
    assert describe(tamed)


class Looks:
    """How often the attributes and texts of hostile errors were read."""

    count = 0


class SeenText(ValueError):
    def __str__(self) -> str:
        Looks.count += 1
        return "seen"


class FreshCauses(ValueError):
    """Each read of its cause creates another error, and all of them stay alive."""

    made: ClassVar[list[FreshCauses]] = []

    @property
    def __cause__(self) -> Any:
        Looks.count += 1
        if len(self.made) >= 20_000:
            return None
        self.made.append(FreshCauses("and another"))
        return self.made[-1]


def seen_chain() -> Exception:
    error = SeenText()
    for _ in range(20_000):
        following = SeenText()
        following.__context__ = error
        error = following
    return error


def seen_group() -> Exception:
    return ExceptionGroup("huge", [SeenText() for _ in range(20_000)])


def seen_notes() -> Exception:
    error = ValueError("noted")
    error.__notes__ = [SeenText() for _ in range(20_000)]  # type: ignore[misc]
    return error


@pytest.mark.parametrize("make", [FreshCauses, seen_chain, seen_group, seen_notes])
def test_an_endless_error_is_read_only_in_part(make: Callable[[], BaseException]) -> None:
    error = make()
    Looks.count = 0
    describe(make_safe(error))
    describe(error)
    assert Looks.count < 2_000
    FreshCauses.made.clear()


def test_one_worker_survives_every_hostile_error(app: Faultline, events: EventTap) -> None:
    """None of them counts as a lost lease; each fails its job with an error text."""

    @app.task(max_attempts=1)
    def plain(job: Job, name: str) -> None:
        raise ERRORS[name]()

    @app.task(max_attempts=1)
    async def waiting(job: Job, name: str) -> None:
        raise ERRORS[name]()

    jobs = {
        (task.name, name): task.enqueue(name=name).job_id
        for task in (plain, waiting)
        for name in ERRORS
    }
    with working(app, concurrency=4):
        records = {key: ended(app, job_id) for key, job_id in jobs.items()}
    for key, record in records.items():
        assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent"), key
        assert record.last_error, key
    assert events.of("stale_write_blocked") == []
