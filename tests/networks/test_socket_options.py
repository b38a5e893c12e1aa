"""Every connection has timeouts and keepalives that notice a vanished peer."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo
from starlette.testclient import TestClient

from faultline import Faultline, Job
from faultline.api.application import create_api
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.postgres.sessions import NETWORK_DEFAULTS, Connection, connect, run
from faultline.reconciler import Reconciler
from faultline.statements import workers
from tests.api.served import make_key
from tests.running import ended, working
from tests.waiting import wait_until

if not hasattr(socket, "TCP_USER_TIMEOUT"):
    pytest.skip("needs Linux, where these limits can be read back", allow_module_level=True)

OPTIONS = {
    "tcp_user_timeout": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    "keepalives_idle": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    "keepalives_interval": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    "keepalives_count": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
}
DEFAULTS = {name: NETWORK_DEFAULTS[name] for name in OPTIONS}
OTHERS = {
    "tcp_user_timeout": "7000",
    "keepalives_idle": "3",
    "keepalives_interval": "2",
    "keepalives_count": "4",
}
PURPOSES = {
    f"faultline {purpose}"
    for purpose in (
        *("worker", "heartbeat", "committer", "reconciler", "handler"),
        *("api", "inspector", "producer"),
    )
}


def found_options(url: str) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    """The options of this process's sockets to the server, by application name."""
    with connect(url, application_name="the test") as conn:
        asked = "SELECT client_port, application_name FROM pg_stat_activity WHERE client_port > 0"
        names = dict(conn.execute(asked).fetchall())
        found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        for port, options in sockets():
            if names.get(port, "").startswith("faultline "):
                found.setdefault(names[port], set()).add(options)
    return found


def sockets() -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """The local port of each socket, and its options."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as duplicate:
            if duplicate.family != socket.AF_INET or duplicate.type != socket.SOCK_STREAM:
                continue
            options = {name: str(duplicate.getsockopt(*which)) for name, which in OPTIONS.items()}
            yield duplicate.getsockname()[1], tuple(sorted(options.items()))


@pytest.mark.parametrize("wanted", [DEFAULTS, OTHERS], ids=["by default", "by the URL"])
def test_every_connection_has_the_default_limits_or_those_of_its_url(
    wanted: dict[str, str], database_url: str, conn: psycopg.Connection[Any]
) -> None:
    given = {} if wanted is DEFAULTS else wanted
    url = conninfo.make_conninfo(database_url, **given)
    app = Faultline(url)

    @app.task()
    async def own(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("SELECT 1")

    @app.task()
    def plain(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("SELECT 1")

    @app.task()
    async def batched(job: Job) -> None: ...

    jobs = [task.enqueue().job_id for task in (own, plain, batched)]
    headers = {"Authorization": f"Bearer {make_key(database_url)}"}
    inspector = make_app(InspectorSettings(database_url=url))
    with (
        working(app, companions=[Reconciler(url).run]),
        TestClient(create_api(url), base_url="http://localhost", headers=headers) as api,
        TestClient(inspector, base_url="http://localhost") as inspected,
    ):
        for job_id in jobs:
            ended(app, job_id)
        assert api.post("/jobs", json={"task": "t", "payload": {}}).status_code == 201
        assert inspected.get("/api/overview").status_code == 200
        wait_until(
            lambda: found_options(database_url).keys() >= PURPOSES, "a connection of each kind"
        )
        found = found_options(database_url)
    app.close()
    assert found == {name: {tuple(sorted(wanted.items()))} for name in found}


def test_the_server_keeps_the_sessions_that_hold_a_workers_lock_for_longer_than_a_lease(
    database_url: str,
) -> None:
    """Their end means a lost worker; a partitioned one must stop before that."""
    registration = workers.register_worker(
        "w", host="h", pid=1, queues=["default"], holds_locks=True
    )
    with connect(database_url) as control, connect(database_url) as heartbeat:
        before = int(NETWORK_DEFAULTS["tcp_user_timeout"])
        assert limit(control) == limit(heartbeat) == before
        run(heartbeat, workers.hold_worker_lock(run(control, registration)))
        assert limit(control) == limit(heartbeat) > 20 * before


def limit(conn: Connection) -> int:
    shown = conn.execute("SHOW tcp_user_timeout").fetchone()
    assert shown is not None
    return int(shown[0])
