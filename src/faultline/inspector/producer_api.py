"""Requests to the producer API with the operator's key."""

from __future__ import annotations

import asyncio
import http.client
import logging
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from faultline.inspector.answers import Refusal
from faultline.serving.client import KEY_HEADER

TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 2**16

_log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The operator whose request is passed on."""

    key: str
    address: str


async def post(
    api_url: str, path: str, *, caller: Caller, body: Mapping[str, str]
) -> tuple[int, bytes]:
    """Its status and its JSON, refusals included. Redirects are not followed: a key goes nowhere else."""
    return await asyncio.to_thread(_ask, api_url, "POST", path, caller, orjson.dumps(body))


async def get(api_url: str, path: str, *, caller: Caller) -> tuple[int, bytes]:
    """Its status and its JSON, refusals included."""
    return await asyncio.to_thread(_ask, api_url, "GET", path, caller, None)


def _ask(
    api_url: str, method: str, path: str, caller: Caller, body: bytes | None
) -> tuple[int, bytes]:
    parts = urlsplit(api_url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    # An API that trusts this proxy (--tls-proxy) records the address of the operator, not ours.
    headers = {KEY_HEADER: caller.key, "X-Forwarded-For": caller.address}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        answer = connection.getresponse()
        told = answer.read(LARGEST_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        hint = "whether it was done is not known: look at the job or queue"
        _log.warning("the API did not answer: %s", error)
        raise Refusal(502, "api_unavailable", "the API did not answer", hint) from error
    finally:
        connection.close()
    try:
        orjson.loads(told)
    except orjson.JSONDecodeError:
        what = f"the API answered {answer.status} with something that is not JSON"
        raise Refusal(
            502, "api_answer", what, "is --api-url the address of faultline api?"
        ) from None
    return answer.status, told
