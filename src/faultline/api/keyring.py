"""The keyring: who a request comes from, by the key it carries."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from faultline.api.refusals import Refusal
from faultline.api.throttle import Throttle
from faultline.errors import FaultlineError
from faultline.postgres.driver import DriverError
from faultline.statements import keys
from faultline.statements.keys import StoredKey
from faultline.statements.statement import Statement

Run = Callable[[Statement[Any]], Awaitable[Any]]

_MOST_REMEMBERED = 10_000
_TOUCH_SECONDS = 60.0
_NO_KEY_HAS_THIS_HASH = bytes(32)
_HOW = (
    "Authorization: Bearer flk_… or X-Faultline-Key: flk_…, made by:"
    " faultline keys create NAME --scope SCOPE"
)


class Keyring:
    """Believes a key for `cache_seconds` after it looked it up: the longest a revoked one lives on."""

    def __init__(
        self, *, cache_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cache_seconds = cache_seconds
        self._clock = clock
        # By the hash of the whole key: nothing in memory can be used as a key.
        self._believed: OrderedDict[bytes, tuple[StoredKey, float]] = OrderedDict()
        self._touched: OrderedDict[int, float] = OrderedDict()

    async def identify(
        self, presented: str | None, run: Run, *, throttle: Throttle, address: str
    ) -> StoredKey:
        """The key, which is valid; or a refusal that does not say which part of it was wrong."""
        if presented is None:
            raise _unauthenticated("this needs a key")
        prefix = keys.prefix_of(presented)
        if prefix is None:
            raise _unauthenticated("the header holds no key of this API")
        presented_hash = keys.hash_of(presented)
        now = self._clock()
        known, until = self._believed.get(presented_hash, (None, now))
        if known is None or now >= until:
            self._believed.pop(presented_hash, None)
            throttle.admit(address, presented_hash)
            known = await run(keys.find(prefix))
            if not _is_it(known, presented_hash):
                throttle.reject(address, presented_hash)
                raise _unauthenticated("this key is not known, or was revoked")
            throttle.accept(presented_hash)
            assert known is not None  # noqa: S101 - then it would not have been the one
            self._remember(self._believed, presented_hash, (known, now + self._cache_seconds))
            await self._touch(known, run, now)
        return known

    async def _touch(self, key: StoredKey, run: Run, now: float) -> None:
        """A request is not refused because its time could not be written down."""
        if now - self._touched.get(key.id, -_TOUCH_SECONDS) < _TOUCH_SECONDS:
            return
        self._remember(self._touched, key.id, now)
        with contextlib.suppress(FaultlineError, DriverError, Refusal):
            await run(keys.touch(key.id))

    @staticmethod
    def _remember(memory: OrderedDict[Any, Any], name: Any, value: Any) -> None:
        memory[name] = value
        memory.move_to_end(name)
        if len(memory) > _MOST_REMEMBERED:
            memory.popitem(last=False)


def _is_it(known: StoredKey | None, presented_hash: bytes) -> bool:
    """An unknown prefix takes as long as a wrong secret."""
    if known is None:
        StoredKey(0, "", _NO_KEY_HAS_THIS_HASH, frozenset()).is_the_one_hashed(presented_hash)
        return False
    return known.is_the_one_hashed(presented_hash)


def _unauthenticated(message: str) -> Refusal:
    return Refusal(401, "unauthenticated", message, _HOW, {"WWW-Authenticate": "Bearer"})
