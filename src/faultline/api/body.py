"""A request's body: bounded while it is read, and JSON that says exactly one thing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import Request

from faultline.api.refusals import Refusal
from faultline.payload import MAX_DEPTH, DuplicateKey, parse_json


class BoundedRequest(Request):
    """What the handlers of FastAPI read bodies from."""

    def bound(self, *, body_bytes: int, deadline: float) -> BoundedRequest:
        self._most, self._deadline = body_bytes, deadline
        return self

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def json(self) -> Any:
        return parse(await self.body())

    async def _read(self) -> bytes:
        """Refused by its announced length, if it has one; else as soon as it is too long."""
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdecimal() and int(announced[:20]) > self._most:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0.0)):
                async for chunk in self.stream():
                    body += chunk
                    if len(body) > self._most:
                        raise self._too_large()
        except TimeoutError:
            raise Refusal(
                408, "request_timeout", "the body did not arrive in time", headers=_CLOSE
            ) from None
        if body:
            self._require_json()
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(
            413,
            "body_too_large",
            f"the body is longer than {self._most:,} bytes",
            "send fewer jobs at once, or store the data elsewhere and put its key in the job",
            _CLOSE,
        )

    def _require_json(self) -> None:
        """Also what keeps web pages of other origins out: they cannot send this type unasked."""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Refusal(
                415,
                "unsupported_media_type",
                "the body is to be JSON",
                "Content-Type: application/json",
            )


_CLOSE = {"Connection": "close"}  # the rest of the body is not read


def parse(body: bytes) -> Any:
    try:
        return parse_json(body.decode())
    except DuplicateKey as error:
        raise Refusal(
            422, "duplicate_key", f"the body is ambiguous: {error}", "send each name once"
        ) from None
    except ValueError as error:
        raise _not_json(str(error)) from None


def _not_json(why: str) -> Refusal:
    return Refusal(422, "invalid_json", f"the body is not JSON: {why}")


def require_depth(value: Any, most: int, what: str) -> None:
    """Where less than the library's own depth is allowed, which it checks by itself."""
    if most >= MAX_DEPTH:
        return
    level, depth = [value], 1
    while level := [
        item
        for holder in level
        for item in (holder.values() if isinstance(holder, dict) else holder)
        if isinstance(item, dict | list)
    ]:
        depth += 1
        if depth > most:
            raise Refusal(422, "invalid_input", f"{what} is nested more than {most} levels deep")
