"""`faultline limits` changes limits; `why`, `jobs` and `queues` show what waits."""

from __future__ import annotations

import pytest

from tests.limits import steps
from tests.protocol.steps import Connection, rows

from .conftest import Explained, Faultline, enqueue


def test_a_limit_is_set_listed_and_removed(faultline: Faultline, conn: Connection) -> None:
    assert faultline("limits", "list").out == "no limits\n"
    enqueue(conn, queue="mail")
    done = faultline(
        "limits", "set", "queue:mail", "--running", "3", "--rate", "10/1s", "--burst", "2"
    )
    assert done.out == "queue:mail: at most 3 at once, 10 in 1 s with a burst of 2; 0 waiting\n"
    heading, line = faultline("limits", "list").out.splitlines()
    assert heading.split()[:4] == ["limit", "running", "waiting", "rate"]
    assert line.split()[:5] == ["queue:mail", "0", "of", "3", "0"]
    [listed] = faultline("limits", "list", "--json").json
    assert listed["rate"] == {"jobs": 10, "seconds": 1.0, "burst": 2}
    assert (listed["max_running"], listed["changed_by"]) == (3, "operator")
    assert faultline("limits", "reset", "queue:mail").out == "queue:mail is removed\n"
    assert faultline("limits", "list", "--json").json == []


def test_a_reset_returns_to_the_values_of_the_code(faultline: Faultline, conn: Connection) -> None:
    steps.limit_customers(conn, 3)
    assert "none starts" in faultline("limits", "set", "key:customer", "--running", "0").out
    done = faultline("limits", "reset", "key:customer")
    assert done.out == "key:customer is as declared: at most 3 at once\n"
    assert faultline("limits", "reset", "key:customer", "--json").json["result"] == "declared"


def test_show_has_the_tasks_and_the_fullest_keys(faultline: Faultline, conn: Connection) -> None:
    steps.limit_customers(conn, 1)
    steps.enqueue(conn, [{"customer": 42}] * 3)
    steps.claim_all(conn)
    shown = faultline("limits", "show", "key:customer").out
    assert "1 running, 2 waiting" in shown
    assert "key of task charge: its argument customer" in shown
    assert shown.splitlines()[-1].split()[:3] == ["42", "1", "2"]
    [key] = faultline("limits", "show", "key:customer", "--json").json["keys"]
    assert (key["limit_key"], key["running"], key["waiting"]) == ("key:customer=42", 1, 2)


def test_an_operator_binds_the_argument_of_a_task(faultline: Faultline, conn: Connection) -> None:
    binding = ("--task", "charge", "--argument", "customer")
    faultline("limits", "set", "key:customer", "--running", "1", *binding)
    steps.enqueue(conn, [{"customer": 42}] * 3)
    assert len(steps.claim_all(conn)) == 1
    faultline("limits", "set", "key:customer", "--running", "2", *binding[:2]).refused(
        "invalid_input"
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("set", "mail", "--running", "3"), "queue:QUEUE, task:TASK or key:NAME"),
        (("set", "queue:mail"), "--running 3"),
        (("set", "queue:mail", "--rate", "10/week"), "10/1s, 100/5min"),
        (("set", "queue:mail", "--running", "3", "--burst", "2"), "--rate 10/1s --burst 3"),
        (("set", "queue:maiil", "--running", "3"), "did you mean mail?"),
        (("set", "key:custmer", "--running", "3"), "did you mean key:customer?"),
    ],
)
def test_a_wrong_limit_is_refused_with_what_to_write(
    faultline: Faultline, conn: Connection, words: tuple[str, ...], hint: str
) -> None:
    enqueue(conn, queue="mail")
    steps.limit_customers(conn, 3)
    error = faultline("limits", *words).refused("invalid_input")
    assert hint in (error.hint or "")
    assert [use["name"] for use in faultline("limits", "list", "--json").json] == ["key:customer"]


@pytest.mark.parametrize("command", ["show", "reset"])
def test_an_unknown_limit_is_refused_with_the_closest_name(
    faultline: Faultline, conn: Connection, command: str
) -> None:
    steps.limit_customers(conn, 3)
    error = faultline("limits", command, "key:custmer").refused("unknown_limit")
    assert error.hint == "did you mean key:customer?"


def test_changes_and_refusals_are_in_the_audit_log(faultline: Faultline, conn: Connection) -> None:
    faultline("limits", "set", "queue:mail", "--running", "3", "--force")
    faultline("limits", "reset", "queue:mial").refused("unknown_limit")
    found = rows(conn, "SELECT action, object, result, code FROM faultline.audit_log ORDER BY id")
    assert found == [
        ("set limit", "limit queue:mail", "done", None),
        ("reset limit", "limit queue:mial", "refused", "unknown_limit"),
    ]


def test_a_rate_has_units(faultline: Faultline) -> None:
    for given, seconds in (("10/s", 1.0), ("10/1.5s", 1.5), ("10/5min", 300.0), ("10/2h", 7200.0)):
        faultline("limits", "set", "queue:mail", "--rate", given, "--force")
        [use] = faultline("limits", "list", "--json").json
        assert use["rate"]["seconds"] == seconds


# ── faultline why, and lists of jobs ─────────────────────────────────────────────────────────────


def test_why_names_the_jobs_that_have_the_places(faultline: Faultline, conn: Connection) -> None:
    steps.limit_customers(conn, 1)
    first, second, third = steps.enqueue(conn, [{"customer": 42}] * 3)
    steps.claim_all(conn)
    asked = Explained(faultline, third)
    assert asked.code == "waits_for_place"
    assert asked.answer.startswith(
        "it waits for a place: 1 of 1 of limit key:customer=42 is taken by"
        f" job {first} on worker first for "
    )
    assert asked.answer.endswith("; 1 job is before it")
    assert "faultline limits set key:customer --running N" in asked.advice
    assert Explained(faultline, second).facts["jobs_before_it"] == 0


def test_why_tells_when_the_rate_allows_the_next_start(
    faultline: Faultline, conn: Connection
) -> None:
    steps.set_limit(conn, "task:charge", rate_jobs=1, rate_seconds=3600)
    *_, last = steps.enqueue(conn, [{}] * 4)
    steps.claim_all(conn)
    asked = Explained(faultline, last)
    assert asked.code == "waits_for_rate"
    assert asked.answer.startswith(
        "it waits for its rate: the next start of limit task:charge is in "
    )
    assert asked.answer.endswith("; 2 jobs are before it")
    assert 3000 < asked.facts["next_start_in_seconds"] <= 3600


def test_why_names_a_limit_of_zero_and_who_set_it(faultline: Faultline, conn: Connection) -> None:
    steps.set_limit(conn, "task:charge", 0)
    [job_id] = steps.enqueue(conn, [{}])
    steps.claim_all(conn)
    asked = Explained(faultline, job_id)
    assert asked.code == "limit_stopped"
    assert "lets no job start: an operator set it to 0" in asked.answer
    assert "faultline limits reset task:charge" in asked.advice


def test_why_says_that_a_limit_with_room_is_about_to_be_used(
    faultline: Faultline, conn: Connection
) -> None:
    steps.set_limit(conn, "task:charge", 1)
    first, second = steps.enqueue(conn, [{}] * 2)
    steps.claim_all(conn)
    conn.execute("DELETE FROM faultline.places WHERE job_id = %s", [first])
    assert Explained(faultline, second).code == "about_to_resume"


def test_lists_of_jobs_and_queues_show_waiting_jobs(faultline: Faultline, conn: Connection) -> None:
    steps.set_limit(conn, "task:charge", 1)
    *_, waits = steps.enqueue(conn, [{}] * 2)
    steps.claim_all(conn)
    [line] = [each for each in faultline("jobs", "list").out.splitlines() if str(waits) in each]
    assert "for limit task:charge" in line
    shown = faultline("jobs", "show", str(waits))
    assert "waits for the limit task:charge" in shown.out
    assert "3026-" not in shown.out
    assert faultline("jobs", "show", str(waits), "--json").json["waits_for"] == "task:charge"
    by_standing = {
        each["standing"]: each["at_least"] for each in faultline("queues", "--json").json
    }
    assert (by_standing["waiting"], by_standing["scheduled"], by_standing["due"]) == (1, 0, 0)
