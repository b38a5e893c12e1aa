"""One POST to the producer API, with somebody else's key."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from faultline.inspector.answers import Refusal

TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 2**16


async def post(
    api_url: str, path: str, *, authorization: str, body: Mapping[str, str]
) -> tuple[int, bytes]:
    """Its status and its JSON, refusals included. Redirects are not followed: a key goes nowhere else."""
    return await asyncio.to_thread(_post, api_url, path, authorization, orjson.dumps(body))


def _post(api_url: str, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
    parts = urlsplit(api_url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    try:
        connection.request("POST", parts.path.rstrip("/") + path, body=body, headers=headers)
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
