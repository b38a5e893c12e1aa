"""The check of schedules: which do not fire, or belong to no code any more."""

from __future__ import annotations

from collections.abc import Iterator

from faultline.cli.doctor.check import Check, ok, warning
from faultline.postgres.sessions import Connection, run
from faultline.statements import schedules as statements
from faultline.wording import count

_NAMED = 5
_SAID = {
    "failing": (
        "have a time zone or an expression that cannot be used",
        "see faultline schedules show NAME, and correct it",
    ),
    "overdue": (
        "should have fired more than a minute ago",
        "run a worker, or faultline reconciler: the leading one fires schedules",
    ),
    "undeclared": (
        "are declared by the code of no live worker, and still fire",
        "start a worker that declares them, or faultline schedules remove NAME",
    ),
}


def schedules(conn: Connection) -> Iterator[Check]:
    found = run(conn, statements.schedules())
    sound = True
    for state, (what, advice) in _SAID.items():
        names = [each.name for each in found if each.state == state]
        if names:
            sound = False
            shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            yield warning("schedules", f"{count(len(names), 'schedule')} {what}: {shown}", advice)
    if sound:
        yield ok("schedules", count(len(found), "schedule"))
