"""The dependency that enqueues in the request's transaction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from faultline import Enqueued, Faultline, InvalidInput, JobSpec
from faultline.adapters.fastapi import Enqueuer, enqueuer
from faultline.testing import run_until_idle
from tests.adapters.fastapi import shop
from tests.running import count, value

Conn = psycopg.Connection[Any]


def jobs(conn: Conn) -> int:
    return count(conn, "faultline.jobs")


def test_a_request_enqueues_a_job(client: TestClient, queue: Faultline, conn: Conn) -> None:
    job_id = client.post("/charge/42").json()
    assert queue.get(job_id).payload == {"invoice": 42}


def test_the_job_and_the_requests_own_write_are_committed_together(
    client: TestClient, conn: Conn
) -> None:
    client.post("/orders/7?fails=false").raise_for_status()
    assert value(conn, "SELECT note FROM effects") == "order 7"
    assert jobs(conn) == 1


def test_a_request_that_fails_leaves_neither_its_write_nor_its_job(
    client: TestClient, conn: Conn
) -> None:
    assert client.post("/orders/7?fails=true").status_code == 409
    assert (count(conn, "effects"), jobs(conn)) == (0, 0)


def test_the_naive_form_leaves_a_job_of_a_request_that_failed(queue: Faultline, conn: Conn) -> None:
    """The control: a job that is enqueued on a connection of its own."""
    conn.execute("CREATE TABLE effects (note text)")
    host = shop.make_shop()
    host.dependency_overrides[shop.enqueue_on_connection] = lambda: Enqueuer(queue)
    assert TestClient(host).post("/orders/7?fails=true").status_code == 409
    assert (count(conn, "effects"), jobs(conn)) == (0, 1)


@pytest.mark.parametrize("form", ["function", "marker", "annotated"])
def test_the_enqueuer_has_the_connection_that_the_endpoint_has(
    queue: Faultline, conn: Conn, form: str
) -> None:
    opened: list[int] = []

    async def connection() -> Any:
        opened.append(1)
        async with await psycopg.AsyncConnection.connect(queue.database_url) as own:
            yield own

    marker = Depends(connection, scope="request" if form == "function" else "function")
    annotated = Annotated[psycopg.AsyncConnection[Any], marker]
    given = {"function": connection, "marker": marker, "annotated": annotated}[form]
    asked = Depends(enqueuer(queue, conn=given))
    host = FastAPI()

    @host.post("/")
    async def pay(enqueue: Enqueuer = asked, own: Any = marker) -> None:
        await enqueue.many([shop.charge.job(invoice=1), shop.charge.job(invoice=2)])
        await own.rollback()

    TestClient(host).post("/").raise_for_status()
    assert opened == [1]
    assert jobs(conn) == 0


def test_a_test_replaces_the_dependency(queue: Faultline, conn: Conn) -> None:
    wanted: list[JobSpec] = []

    class Recorder(Enqueuer):
        async def __call__(self, task: Any, /, *args: Any, **kwargs: Any) -> Enqueued:
            wanted.append(task.job(*args, **kwargs))
            return Enqueued(wanted[-1].task, False)  # type: ignore[arg-type]

    host = shop.make_shop()
    host.dependency_overrides[shop.enqueue_jobs] = lambda: Recorder(queue)
    TestClient(host).post("/charge/42").raise_for_status()
    assert [job.payload for job in wanted] == [{"invoice": 42}]
    assert jobs(conn) == 0


def test_a_test_runs_the_jobs_that_its_request_enqueued(client: TestClient, conn: Conn) -> None:
    client.post("/orders/7?fails=false").raise_for_status()
    [attempted] = run_until_idle(shop.queue)
    assert attempted.outcome == "succeeded"
    assert count(conn, "effects") == 2


def test_what_is_no_dependency_is_refused(queue: Faultline) -> None:
    with pytest.raises(InvalidInput, match="conn is a str, not a dependency"):
        enqueuer(queue, conn="postgresql://")


def test_a_plain_connection_is_refused_with_advice(queue: Faultline, conn: Conn) -> None:
    host = FastAPI()
    asked = Depends(enqueuer(queue, conn=lambda: conn))

    @host.post("/")
    async def pay(enqueue: Enqueuer = asked) -> None:
        await enqueue(shop.charge, invoice=1)

    with pytest.raises(InvalidInput, match="must be async here"):
        TestClient(host).post("/")


PROGRAM = """
from typing import Annotated
import faultline
from fastapi import Depends, FastAPI
from faultline.adapters.fastapi import Enqueuer, enqueuer, worker_lifespan

queue = faultline.Faultline("postgresql://")

@queue.task()
async def charge(job: faultline.Job, invoice: int, note: str = "") -> None: ...

Enqueue = Annotated[Enqueuer, Depends(enqueuer(queue))]
shop = FastAPI(lifespan=worker_lifespan(queue, concurrency=5))

async def pay(enqueue: Enqueue) -> faultline.Enqueued:
    await enqueue.many([charge.job(invoice=1)])
    await enqueue(charge.options(delay=60), invoice=1)
    return await enqueue(charge, 1, note="x"{more})
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("more", "accepted"), [("", True), (', invoice="1"', False)])
def test_type_checkers_compare_the_arguments_with_the_handlers(
    tmp_path: Path, more: str, accepted: bool
) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM.replace("{more}", more))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode == 0) is accepted, checked.stdout
