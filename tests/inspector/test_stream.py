"""The event stream of a real inspector: changes, outages and the stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest

from faultline_drills.proxy import Proxy, proxy_to
from tests.inspector import stories
from tests.inspector.conftest import Serve
from tests.inspector.listening import listening
from tests.protocol import steps

Connection = psycopg.Connection[Any]


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A way to the test's database that can be cut."""
    with proxy_to(database_url) as proxy:
        yield proxy


def get(address: str) -> tuple[int, Any]:
    answer = httpx2.get(address, timeout=30, trust_env=False)
    return answer.status_code, answer.json()


def test_a_takeover_is_streamed_and_can_be_read_afterwards(
    serve: Serve, database_url: str, conn: Connection
) -> None:
    address = serve(database_url).address
    with listening(address) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.line() == "retry: 2000"
        first = stream.wait_for("overview")
        assert first["totals"]["running"] == 0

        story = stories.takeover(conn)
        stream.wait_for("overview", lambda overview: overview["totals"]["running"] == 1)
        steps.commit(conn, story.current)
        stories.refused_commit(conn, story.stale)
        refusal = stream.wait_for("rejection")

    assert refusal["job_id"] == str(story.job_id)
    assert (refusal["stale_token"], refusal["current_token"]) == (1, 2)
    _, timeline = get(f"{address}/api/jobs/{story.job_id}/timeline")
    assert [(each["token"], each["outcome"]) for each in timeline["attempts"]] == [
        *[(1, "expired"), (2, "succeeded")]
    ]


def test_earlier_rejections_are_not_streamed_as_new(
    serve: Serve, database_url: str, conn: Connection
) -> None:
    stories.run_takeover(conn)
    with listening(serve(database_url).address) as stream:
        stream.wait_for("overview")
        story = stories.run_takeover(conn)
        refusal = stream.wait_for("rejection")

    assert refusal["job_id"] == str(story.job_id)


def test_an_outage_and_its_end_are_streamed(serve: Serve, proxy: Proxy) -> None:
    served = serve(proxy.url)
    with listening(served.address) as stream:
        stream.wait_for("overview")

        proxy.refuse_connections()
        proxy.reset_all()
        away = stream.wait_for("database", lambda database: not database["ok"])
        status, refusal = get(f"{served.address}/api/overview")
        with listening(served.address) as latecomer:
            assert latecomer.wait_for("database")["ok"] is False
        proxy.clear_faults()
        back = stream.wait_for("database", lambda database: database["ok"])
        stream.wait_for("overview")

    assert away["reason"]
    assert back == {"ok": True, "reason": None}
    assert (status, refusal["error"]["code"]) == (503, "database_unavailable")
    assert get(f"{served.address}/api/overview")[0] == 200
    assert served.is_alive


def test_an_inspector_starts_without_its_database_and_finds_it_later(
    serve: Serve, proxy: Proxy
) -> None:
    proxy.refuse_connections()
    served = serve(proxy.url)
    status, _ = get(f"{served.address}/api/leases")
    with listening(served.address) as stream:
        stream.wait_for("database", lambda database: not database["ok"])
        proxy.clear_faults()
        stream.wait_for("overview")

    assert status == 503


def test_sigterm_ends_the_streams_and_the_process_exits_with_0(
    serve: Serve, database_url: str
) -> None:
    served = serve(database_url)
    with listening(served.address) as stream:
        stream.wait_for("overview")
        code = served.stop()
        while stream.next() is not None:
            pass

    assert code == 0
    assert [line for line in served.lines if "Traceback" in line or "rror" in line] == []


def test_a_stream_beyond_the_limit_is_refused(serve: Serve, database_url: str) -> None:
    address = serve(database_url, "--max-streams", "1").address
    with listening(address) as stream:
        stream.wait_for("overview")
        status, refusal = get(f"{address}/api/stream")

    assert (status, refusal["error"]["code"]) == (503, "too_many_streams")


def test_one_address_cannot_use_up_all_streams(serve: Serve, database_url: str) -> None:
    """The answer says which limit it was, so that the page can poll instead."""
    address = serve(database_url, "--streams-per-address", "1", "--tls-proxy").address
    with listening(address) as stream:
        stream.wait_for("overview")
        answer = httpx2.get(f"{address}/api/stream", timeout=30, trust_env=False)
        headers = {"X-Forwarded-For": "made up, 192.0.2.7"}
        with httpx2.stream(
            "GET", f"{address}/api/stream", headers=headers, timeout=30, trust_env=False
        ) as other:
            status = other.status_code

    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "too_many_streams_from_address"
    assert int(answer.headers["retry-after"]) > 0
    assert status == 200
