"""Authentication of requests by their API key, with a short cache."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from faultline.api.api_errors import ApiError
from faultline.api.rate_limits import WrongKeyLimiter
from faultline.errors import FaultlineError
from faultline.postgres.driver import DriverError
from faultline.statements import keys
from faultline.statements.keys import StoredKey
from faultline.statements.statement import Statement

Run = Callable[[Statement[Any]], Awaitable[Any]]

_MAX_REMEMBERED = 10_000
_TOUCH_SECONDS = 60.0
_NO_KEY_HAS_THIS_HASH = bytes(32)
_HOW = (
    "Authorization: Bearer flk_… or X-Faultline-Key: flk_…, made by:"
    " faultline keys create NAME --scope SCOPE"
)


class KeyAuthenticator:
    """Caches valid keys for `cache_seconds`; a revoked key works that long at most."""

    def __init__(
        self, *, cache_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cache_seconds = cache_seconds
        self._clock = clock
        # By the hash of the whole key: no usable key stays in memory.
        self._cache: OrderedDict[bytes, tuple[StoredKey, float]] = OrderedDict()
        self._touched: OrderedDict[int, float] = OrderedDict()

    async def authenticate(
        self, presented: str | None, run: Run, *, wrong_keys: WrongKeyLimiter, address: str
    ) -> StoredKey:
        """The stored key. The error for a wrong one does not say which part is wrong."""
        if presented is None:
            raise _unauthenticated("this needs a key")
        prefix = keys.prefix_of(presented)
        if prefix is None:
            raise _unauthenticated("the header holds no key of this API")
        presented_hash = keys.hash_of(presented)
        now = self._clock()
        known, until = self._cache.get(presented_hash, (None, now))
        if known is None or now >= until:
            self._cache.pop(presented_hash, None)
            wrong_keys.admit(address, presented_hash)
            known = await run(keys.find(prefix))
            if not _matches(known, presented_hash):
                wrong_keys.reject(address, presented_hash)
                raise _unauthenticated("this key is not known, or was revoked")
            wrong_keys.accept(presented_hash)
            assert known is not None  # noqa: S101 - it has matched
            self._remember(self._cache, presented_hash, (known, now + self._cache_seconds))
            await self._touch(known, run, now)
        return known

    async def _touch(self, key: StoredKey, run: Run, now: float) -> None:
        """Record the use of the key. A failure to record it does not fail the request."""
        if now - self._touched.get(key.id, -_TOUCH_SECONDS) < _TOUCH_SECONDS:
            return
        self._remember(self._touched, key.id, now)
        with contextlib.suppress(FaultlineError, DriverError, ApiError):
            await run(keys.touch(key.id))

    @staticmethod
    def _remember(memory: OrderedDict[Any, Any], name: Any, value: Any) -> None:
        memory[name] = value
        memory.move_to_end(name)
        if len(memory) > _MAX_REMEMBERED:
            memory.popitem(last=False)


def _matches(known: StoredKey | None, presented_hash: bytes) -> bool:
    """An unknown prefix takes as long as a wrong secret."""
    if known is None:
        StoredKey(0, "", _NO_KEY_HAS_THIS_HASH, frozenset()).is_the_one_hashed(presented_hash)
        return False
    return known.is_the_one_hashed(presented_hash)


def _unauthenticated(message: str) -> ApiError:
    return ApiError(401, "unauthenticated", message, _HOW, {"WWW-Authenticate": "Bearer"})
