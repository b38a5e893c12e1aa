"""The services of compose.yaml together: they start, work, are scraped, and stop."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
from typing import Any, LiteralString

import psycopg
import pytest

from faultline.embedded import Server
from tests.containers import database
from tests.containers.composition import scraped
from tests.containers.engine import Engine
from tests.waiting import wait_until

BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.02
CSRF_COOKIE = re.compile(r"faultline_csrf=([^;]+)")


class Site:
    """One service, by HTTP, at the port that compose.yaml publishes."""

    def __init__(self, engine: Engine, name: str) -> None:
        (published,) = engine.services[name].published
        _, here, inside = published.split(":")
        assert here == inside
        self.host, self.port = engine.local.addresses[name], int(inside)

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=BOUND_SECONDS)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            if text is not None:
                sent["Content-Type"] = "application/json"
            connection.request(method, path, text, sent)
            answer = connection.getresponse()
            answered = answer.read().decode()
            is_json = "json" in (answer.headers.get("content-type") or "")
            return answer.status, json.loads(answered) if is_json else answered, answer.headers

    def get(self, path: str, **headers: str) -> Any:
        status, answered, _ = self.ask("GET", path, **headers)
        assert status == 200, answered
        return answered

    def wait_for(self, path: str, holds: Any, **headers: str) -> Any:
        answered: list[Any] = []

        def found() -> bool:
            answered[:] = [self.get(path, **headers)]
            return bool(holds(answered[0]))

        wait_until(found, lambda: f"{path} stays {answered}", limit_seconds=BOUND_SECONDS)
        return answered[0]


def run(engine: Engine, server: Server) -> None:
    running = [name for name, service in engine.services.items() if not service.runs_once]
    running.remove("grafana")  # not installed where tests run
    missing = [program for program in ("prometheus", "wget") if shutil.which(program) is None]
    if missing:
        running.remove("prometheus")
    for name in running:
        engine.up(name)
    for name in running:
        engine.wait_until_healthy(name)
    assert "nothing to do" not in engine.output("migrate")
    assert "nothing to do" in engine.up_again("migrate")

    answered = engine.run(
        "operator", "keys", "create", "shop", *_scopes("enqueue", "read", "operate")
    )
    (key,) = re.findall(r"flk_\w+_[\w-]+", answered)
    assert "0 problems, 0 warnings" in engine.run("operator", "doctor")
    bearer = {"Authorization": f"Bearer {key}"}
    api, inspector = Site(engine, "api"), Site(engine, "inspector")

    assert api.ask("GET", "/health")[0] == 200
    order = {"task": "shop.charge", "payload": {"invoice": 42, "cents": 1999}}
    assert api.ask("POST", "/jobs", order)[0] == 401
    made = [
        api.ask("POST", "/jobs", {**order, "idempotency_key": "invoice-42"}, **bearer)
        for _ in range(2)
    ]
    assert [status for status, _, _ in made] == [201, 200]
    job = made[0][1]["job_id"]
    api.wait_for(f"/jobs/{job}", lambda answered: answered["state"] == "succeeded", **bearer)
    url = database.superuser_url(engine.services["postgres"], server)
    with psycopg.connect(url, autocommit=True) as conn:
        assert conn.execute("SELECT invoice, cents FROM shop.payments").fetchall() == [(42, 1999)]
        _accounts_have_what_they_need_and_no_more(conn)

    assert inspector.get(f"/api/jobs/{job}")["state"] == "succeeded"
    inspector.wait_for("/api/risk", lambda answered: answered["active_workers"] == 2)
    _operate_from_the_page(inspector, bearer)
    paused = {queue["queue"]: queue["paused"] for queue in api.get("/queues", **bearer)["queues"]}
    assert paused["mail"]

    if not missing:
        _is_watched(Site(engine, "prometheus"), engine)
    _a_worker_may_go_while_it_works(engine, api, bearer, url)

    # Each is missed by its own health check, while those it needs are still there.
    for name in sorted(set(running) - {"worker-1", "postgres"}, key=["api"].__contains__):
        assert engine.stop(name) == 0, engine.output(name)
        assert engine.health(name) != 0
    server.shut_down()
    assert engine.health("postgres") != 0
    if missing:
        pytest.skip(
            f"all was tried but Prometheus: {', '.join(missing)} not installed"
            " (Debian: apt-get install prometheus wget)"
        )


def _a_worker_may_go_while_it_works(
    engine: Engine, api: Site, bearer: dict[str, str], url: str
) -> None:
    """A drained worker finishes or releases its jobs, at the cost of no attempt.

    There are more jobs than the other worker can run at once.
    """
    slow = {"task": "shop.report", "payload": {"seconds": 1}}
    status, answered, _ = api.ask("POST", "/jobs/batch", {"jobs": [slow] * 25}, **bearer)
    assert status == 201, answered
    its_own = f"%-{engine.pid('worker-1')}-%"
    with psycopg.connect(url, autocommit=True) as conn:
        _wait_for(
            conn,
            "SELECT FROM faultline.jobs WHERE state = 'running' AND lease_owner LIKE %s",
            its_own,
        )
        assert engine.stop("worker-1") == 0, engine.output("worker-1")
        assert engine.health("worker-1") != 0
        assert engine.health("worker-2") == 0
        for job in answered["jobs"]:
            path = f"/jobs/{job['job_id']}"
            done = api.wait_for(path, lambda answered: answered["state"] == "succeeded", **bearer)
            assert done["attempts"] == 1


def _wait_for(conn: psycopg.Connection[Any], query: LiteralString, *values: Any) -> None:
    wait_until(
        lambda: conn.execute(query, values).fetchone() is not None,
        query,
        limit_seconds=BOUND_SECONDS,
    )


def _scopes(*names: str) -> list[str]:
    return [word for name in names for word in ("--scope", name)]


def _accounts_have_what_they_need_and_no_more(conn: psycopg.Connection[Any]) -> None:
    accounts = conn.execute(
        "SELECT m.rolname, array_agg(r.rolname::text ORDER BY r.rolname) FROM pg_auth_members AS g"
        " JOIN pg_roles AS m ON m.oid = g.member JOIN pg_roles AS r ON r.oid = g.roleid"
        " WHERE m.rolcanlogin AND r.rolname LIKE 'faultline%' AND NOT m.rolsuper GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert accounts == [
        ("api", ["faultline_inspector", "faultline_operator", "faultline_producer"]),
        ("inspector", ["faultline_inspector"]),
        ("migrator", ["faultline_owner"]),
        ("operator", ["faultline_operator", "faultline_producer"]),
        ("reconciler", ["faultline_worker"]),
        ("worker", ["faultline_worker"]),
    ]
    # The inspector opens a session at the first request; that of a service that ran once may be closing.
    _wait_for(
        conn,
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND usename IS NOT NULL AND usename <> 'inspector'"
        " HAVING array_agg(DISTINCT usename::text) = %s",
        ["api", "reconciler", "worker"],
    )
    rights = conn.execute(
        "SELECT has_database_privilege('public', current_database(), 'CONNECT'),"
        " has_function_privilege('migrator', 'pg_stat_file(text, boolean)', 'EXECUTE'),"
        " has_function_privilege('worker', 'pg_stat_file(text, boolean)', 'EXECUTE')"
    ).fetchone()
    assert rights == (False, True, False)


def _operate_from_the_page(inspector: Site, bearer: dict[str, str]) -> None:
    """The inspector forwards the action to the API at its configured address."""
    _, _, headers = inspector.ask("GET", "/")
    (token,) = CSRF_COOKIE.findall(headers["Set-Cookie"])
    status, answered, _ = inspector.ask(
        "POST",
        "/api/actions/pause",
        {"queue": "mail", "reason": "the mail server is unreachable"},
        Origin=f"http://{inspector.host}:{inspector.port}",
        Cookie=f"faultline_csrf={token}",
        X_Faultline_CSRF=token,
        **bearer,
    )
    assert status == 200, answered


def _is_watched(prometheus: Site, engine: Engine) -> None:
    targets = [target.split(":") for targets in scraped().values() for target in targets]
    wanted = {f"{engine.local.addresses[name]}:{port}" for name, port in targets}
    up = prometheus.wait_for(
        "/api/v1/query?query=up",
        lambda answered: [s["value"][1] for s in _series(answered)] == ["1"] * 4,
    )
    assert {series["metric"]["instance"] for series in _series(up)} == wanted
    groups = prometheus.wait_for(
        "/api/v1/rules",
        lambda answered: all(
            r["health"] == "ok" for g in answered["data"]["groups"] for r in g["rules"]
        ),
    )["data"]["groups"]
    assert sum(len(group["rules"]) for group in groups) >= 16


def _series(answered: Any) -> list[Any]:
    return list(answered["data"]["result"])
