"""The client of a request: address, scheme and key, also behind a trusted proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers

UNKNOWN = "unknown"
KEY_HEADER = "X-Faultline-Key"  # for clients whose Authorization header belongs to a proxy
_BEARER = "bearer"


def address_of(scope: dict[str, Any] | Any, *, behind_proxy: bool) -> str:
    """The client's address.

    A trusted proxy appends the address that it saw to X-Forwarded-For. Only this last element counts: the
    client may have forged the others.
    """
    if behind_proxy:
        named = Headers(scope=scope).getlist("x-forwarded-for")
        if named and (address := _valid(named[-1].rpartition(",")[2].strip())):
            return address
    client = scope.get("client")
    return str(client[0]) if client else UNKNOWN


def _valid(text: str) -> str | None:
    bare = text.partition("]")[0].removeprefix("[") if text[:1] == "[" else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return None


def is_secure(scope: Any, *, behind_proxy: bool) -> bool:
    """Whether the browser uses TLS, to this server or to the trusted proxy."""
    if scope.get("scheme") == "https":
        return True
    forwarded_protocols: Iterable[str] = Headers(scope=scope).getlist("x-forwarded-proto")
    return behind_proxy and any(each.strip().lower() == "https" for each in forwarded_protocols)


def presented_key(headers: Headers) -> str | None:
    """The key in X-Faultline-Key, else the Bearer token; None: neither."""
    if (own := headers.get(KEY_HEADER)) is not None:
        scheme, _, token = own.strip().partition(" ")
        return token.strip() if scheme.lower() == _BEARER and token else own.strip()
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == _BEARER else None
