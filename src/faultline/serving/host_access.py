"""Access that a host application grants to requests for what it has mounted.

The API and the inspector can be mounted in another ASGI application. The host then authenticates its users,
and names the caller in the ASGI scope, where no client can write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from faultline.errors import InvalidInput

SCOPES: Final = frozenset({"enqueue", "read", "operate"})
_CALLER = "faultline.caller"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of the host application, and what this user may do.

    The audit log shows the name. The scopes are those of API keys: "enqueue", "read" and "operate". None
    includes another.
    """

    name: str
    scopes: Collection[str]

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise InvalidInput(
                f"scopes is the text {self.scopes!r}", hint='scopes is a collection: {"read"}'
            )
        if unknown := sorted(set(self.scopes) - SCOPES):
            raise InvalidInput(
                f"there is no scope {unknown[0]!r}", hint=f"scopes are {', '.join(sorted(SCOPES))}"
            )
        if not self.name:
            raise InvalidInput("a caller needs a name, which the audit log shows")

    def may(self, scope: str) -> bool:
        return scope in self.scopes


def grant(scope: MutableMapping[str, Any], caller: Caller) -> None:
    scope[_CALLER] = caller


def caller_of(scope: Mapping[str, Any]) -> Caller | None:
    """The caller that the host application has named, if it has."""
    found: Caller | None = scope.get(_CALLER)
    return found


def is_cross_origin_write(scope: Mapping[str, Any]) -> bool:
    """Whether a web page of another origin makes this request to change something.

    The browser would send the user's cookies with it. Browsers name the relation in Sec-Fetch-Site; older
    ones send only an Origin, which must then be the host of the request. Programs send neither.
    """
    if scope["method"] in _SAFE_METHODS:
        return False
    headers = Headers(raw=scope["headers"])
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    return origin is not None and not is_origin_of(origin, headers.get("host"))


def is_origin_of(origin: str | None, host: str | None) -> bool:
    """Whether an Origin header names the host that the request was sent to."""
    try:
        return origin is not None and urlsplit(origin).netloc == host
    except ValueError:  # such as http://[
        return False


def local_path(scope: Mapping[str, Any]) -> str:
    """The path of a request without the prefix under which the application is mounted."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        return path[len(prefix) :] or "/"
    return path
