"""The tasks of the examples take effect once; the naive forms do not."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from faultline.testing import Databases, ZombieEffect, zombies

from .conftest import EXAMPLES, Example

Conn = psycopg.Connection[Any]
Payments = Callable[..., Any]  # payments(naive=…)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def pipeline(example: Example) -> Any:
    """The jobs of the pipeline: a document with one line that is not counted yet."""
    jobs = example("pipeline", "jobs")
    jobs.SECONDS_PER_LINE = 0
    with psycopg.connect(jobs.app.database_url) as conn:
        conn.execute("create table lines (document int, line int, text text)")
        conn.execute("create table documents (id int primary key, lines_left int)")
        conn.execute("create table counts (document int, line int, words int)")
        conn.execute("insert into lines values (1, 1, 'three small words'), (2, 1, 'one')")
        conn.execute("insert into documents values (1, 1)")
    return jobs


def counted_and_collected_once(conn: Conn) -> None:
    counts = conn.execute("select line, words from counts where document = 1").fetchall()
    assert counts == [(1, 3)]
    assert conn.execute("select lines_left from documents where id = 1").fetchone() == (0,)
    collects = "select count(*) from faultline.jobs where task = 'pipeline.collect'"
    assert conn.execute(collects).fetchone() == (1,)


def split_once(conn: Conn) -> None:
    children = "select count(*) from faultline.jobs where payload->>'document' = '2' and task = %s"
    assert conn.execute(children, ["pipeline.count"]).fetchone() == (1,)
    [(left,)] = conn.execute("select lines_left from documents where id = 2").fetchall()
    [(counted,)] = conn.execute("select count(*) from counts where document = 2").fetchall()
    assert left + counted == 1  # the worker may have run the child too


def test_a_line_is_counted_once(pipeline: Any) -> None:
    line = {"document": 1, "line": 1}
    zombies(pipeline.app, pipeline.count, line, invariant=counted_and_collected_once)


def test_a_document_is_split_once(pipeline: Any) -> None:
    zombies(pipeline.app, pipeline.split, {"document": 2}, invariant=split_once)


def test_the_naive_form_counts_a_line_twice(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAIVE", "1")
    line = {"document": 1, "line": 1}
    with pytest.raises(ZombieEffect):
        zombies(pipeline.app, pipeline.count, line, invariant=counted_and_collected_once)


@pytest.fixture
def payments(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[Payments]:
    """Imports the jobs of the payments, fenced or naive, and stores a payment."""
    url = databases.make()
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.syspath_prepend(str(EXAMPLES / "payments"))
    made: list[Any] = []

    def load(*, naive: bool) -> Any:
        monkeypatch.setenv("NAIVE", "1" if naive else "")
        jobs, models = importlib.import_module("jobs"), importlib.import_module("models")
        made.extend((jobs.app.close, models.engine.dispose))
        jobs.RECEIPT_SECONDS = 0
        models.Base.metadata.create_all(models.engine)
        with models.Session.begin() as session:
            session.add(models.Payment(id=1, amount=42))
        models.engine.dispose()
        return jobs

    yield load
    for close in made:
        close()
    for name in ("jobs", "models"):
        sys.modules.pop(name, None)
    databases.drop(url)


def charged_once(conn: Conn) -> None:
    charges = conn.execute("select count(*) from charges where payment_id = 1").fetchone()
    assert charges == (1,)


def test_a_payment_is_charged_once(payments: Payments) -> None:
    jobs = payments(naive=False)
    report = zombies(jobs.app, jobs.charge, {"payment_id": 1}, invariant=charged_once)
    assert report.refusals > 0


def test_the_naive_form_charges_a_payment_twice(payments: Payments) -> None:
    jobs = payments(naive=True)
    with pytest.raises(ZombieEffect):
        zombies(jobs.app, jobs.charge, {"payment_id": 1}, invariant=charged_once)


@pytest.fixture
def receiver(example: Example) -> Iterator[Any]:
    """The receiver of the webhooks, running on loopback."""
    with example("webhooks", "receiver").Receiver() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def webhooks(example: Example) -> Any:
    jobs = example("webhooks", "jobs")
    with psycopg.connect(jobs.app.database_url) as conn:
        conn.execute("create table deliveries (event text)")
    return jobs


def deliver_under_faults(webhooks: Any, receiver: Any) -> None:
    def forget(conn: Conn) -> None:
        receiver.calls.clear()
        receiver.effects.clear()

    def effect_is_there_once(conn: Conn) -> None:
        assert dict(receiver.effects) == {"paid": 1}
        assert conn.execute("select event from deliveries").fetchall() == [("paid",)]

    event = {"url": receiver.url, "event": "paid"}
    zombies(webhooks.app, webhooks.deliver, event, invariant=effect_is_there_once, arrange=forget)


def test_a_webhook_has_one_effect(webhooks: Any, receiver: Any) -> None:
    deliver_under_faults(webhooks, receiver)


def test_without_the_jobs_key_a_webhook_has_two_effects(
    webhooks: Any, receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAIVE", "1")
    with pytest.raises(ZombieEffect, match="paid"):
        deliver_under_faults(webhooks, receiver)
