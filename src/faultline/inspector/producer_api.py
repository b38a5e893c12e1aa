"""Requests to the producer API with the operator's key."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from faultline.inspector.answers import Refusal
from faultline.serving.client import KEY_HEADER

TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 2**16


async def post(api_url: str, path: str, *, key: str, body: Mapping[str, str]) -> tuple[int, bytes]:
    """Its status and its JSON, refusals included. Redirects are not followed: a key goes nowhere else."""
    return await asyncio.to_thread(_ask, api_url, "POST", path, key, orjson.dumps(body))


async def get(api_url: str, path: str, *, key: str) -> tuple[int, bytes]:
    """Its status and its JSON, refusals included."""
    return await asyncio.to_thread(_ask, api_url, "GET", path, key, None)


def _ask(api_url: str, method: str, path: str, key: str, body: bytes | None) -> tuple[int, bytes]:
    parts = urlsplit(api_url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    headers = {KEY_HEADER: key}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        answer = connection.getresponse()
        told = answer.read(LARGEST_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        hint = "whether it was done is not known: look at the job or queue"
        raise Refusal(502, "api_unavailable", f"the API did not answer: {error}", hint) from error
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
