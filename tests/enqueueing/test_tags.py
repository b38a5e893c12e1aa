"""Tags: words of an enqueue by which jobs are found and operated."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from faultline import Faultline, InvalidInput, Job, JobSpec
from faultline.payload import MAX_TAGS
from tests.protocol.steps import value
from tests.running import Connection, work_off
from tests.schedules.steps import fire, make_due


@pytest.fixture
def charge(app: Faultline) -> Any:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job, invoice: int) -> None:
        if invoice < 0:
            raise ValueError("a negative invoice")

    return charge


def test_tags_are_stored_sorted_and_once(app: Faultline, charge: Any) -> None:
    tagged = charge.options(tags=["vip", "import:7", "vip"]).enqueue(invoice=1)
    assert app.get(tagged.job_id).tags == ("import:7", "vip")
    assert app.get(charge.options(tags=[]).enqueue(invoice=2).job_id).tags == ()


def test_a_job_without_tags_stores_nothing(charge: Any, conn: Connection) -> None:
    charge.enqueue(invoice=1)
    charge.options(tags=[], delay=0).enqueue(invoice=2)
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE tags IS NULL") == 2


def test_jobs_of_one_call_have_their_own_tags(app: Faultline, charge: Any) -> None:
    jobs = [charge.options(tags=["a"]).job(invoice=1), charge.job(invoice=2)]
    assert [app.get(each.job_id).tags for each in app.enqueue_many(jobs)] == [("a",), ()]
    equal = charge.options(tags=["b"]).enqueue_many([{"invoice": 3}, {"invoice": 4}])
    assert [app.get(each.job_id).tags for each in equal] == [("b",), ("b",)]


def test_jobs_are_selected_and_operated_by_a_tag(app: Faultline, charge: Any) -> None:
    wrong = charge.options(tags=["import:7", "vip"]).enqueue(invoice=-1).job_id
    other = charge.options(tags=["import:8"]).enqueue(invoice=-2).job_id
    untagged = charge.enqueue(invoice=-3).job_id
    for job_id in (wrong, other, untagged):
        work_off(app, job_id)
    assert [job.id for job in app.jobs(tag="import:7")] == [wrong]
    assert {job.id for job in app.jobs(tag="import:8", state="failed")} == {other}
    assert app.jobs(tag="import").count() == 0
    assert app.jobs(tag="import:7").retry().done == 1
    assert app.jobs(tag="import:7").edit(invoice=1).done == 1
    assert app.jobs(tag="import:7").cancel().done == 1
    assert app.jobs(tag="import:7").delete().done == 1
    assert {job.id for job in app.jobs()} == {other, untagged}


def test_a_hook_around_an_enqueue_sees_the_tags(app: Faultline, charge: Any) -> None:
    seen = []

    @app.around_enqueue
    def note(spec: JobSpec) -> Any:
        seen.append(spec.tags)
        yield

    charge.options(tags=["a"]).enqueue(invoice=1)
    charge.enqueue(invoice=2)
    assert seen == [("a",), None]


@pytest.mark.parametrize(
    "tags",
    [
        "vip",
        7,
        [7],
        [""],
        ["two words"],
        ["-a"],
        ["a" * 101],
        ["a\n"],
        [f"t{number}" for number in range(MAX_TAGS + 1)],
    ],
)
def test_wrong_tags_are_refused_by_python(charge: Any, tags: Any) -> None:
    with pytest.raises(InvalidInput, match="tag"):
        charge.options(tags=tags)


def test_the_longest_and_the_most_tags_are_accepted(app: Faultline, charge: Any) -> None:
    tags = [f"{number:0>100}" for number in range(MAX_TAGS)]
    assert app.get(charge.options(tags=tags).enqueue(invoice=1).job_id).tags == tuple(tags)


@pytest.mark.parametrize(
    "tags",
    [
        "vip",
        7,
        {"a": 1},
        [7],
        [None],
        [""],
        ["two words"],
        ["a", "-a"],
        ["a\n"],
        ["a" * 101],
        [f"t{number}" for number in range(MAX_TAGS + 1)],
    ],
)
def test_wrong_tags_are_refused_by_sql_which_names_the_job(conn: Connection, tags: Any) -> None:
    jobs = Jsonb([{"task": "t"}, {"task": "t", "tags": tags}])
    with pytest.raises(psycopg.Error, match="job 1: tags must be") as refused:
        conn.execute("SELECT * FROM faultline.enqueue_jobs(%s)", [jobs])
    assert refused.value.sqlstate == "FL005"


@pytest.mark.parametrize("tags", [[], [None], ["a b"], [""], ["a", "-b"], [["a"], ["b"]]])
def test_the_column_refuses_what_the_functions_would_not_store(conn: Connection, tags: Any) -> None:
    with pytest.raises(psycopg.Error, match="tags_are_up_to_20_words"):
        conn.execute("SELECT %s::text[]::faultline.job_tags", [tags])


def test_the_jobs_of_a_schedule_have_its_tags(
    app: Faultline, charge: Any, conn: Connection
) -> None:
    schedule = app.schedule(charge.options(tags=["daily"]).job(invoice=1), every=60, name="report")
    changed = {**schedule.definition, "tags": ["daily", "night"]}
    added = "SELECT faultline.add_schedule(%s, true)"
    outcomes = [value(conn, added, Jsonb(each)) for each in (schedule.definition, changed, changed)]
    assert outcomes == ["added", "changed", "unchanged"]
    assert fire(conn, make_due(conn), revision=2) is not None
    [job] = app.jobs()
    assert job.tags == ("daily", "night")
