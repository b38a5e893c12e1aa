"""What makes the sessions of `job.session()`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from faultline.errors import InvalidInput

if TYPE_CHECKING:
    from faultline.app import Faultline

SYNC, ASYNC = "sqlalchemy", "sqlalchemy async"  # in `app.session_makers`


def use_sessions(app: Faultline, *makers: Callable[[], Any]) -> None:
    """Name the makers of the sessions of `job.session()`: sync, async or both.

    In a forked child their engines drop the connections that they share with the parent.
    """
    for maker in makers:
        kind = getattr(maker, "class_", None)
        is_async = hasattr(kind, "sync_session_class")  # AsyncSession, whose module needs greenlet
        if not isinstance(kind, type) or not (is_async or issubclass(kind, Session)):
            raise InvalidInput(
                f"{maker!r} makes no sessions",
                hint="use_sessions(app, sessionmaker(engine)) or async_sessionmaker(engine)",
            )
        app.session_makers[ASYNC if is_async else SYNC] = maker
        engine = getattr(maker, "kw", {}).get("bind")
        if engine is not None:
            _forget_connections_at_fork(engine.sync_engine if is_async else engine)


def _forget_connections_at_fork(engine: Any) -> None:
    kept = weakref.ref(engine)

    def forget() -> None:
        if (alive := kept()) is not None:
            alive.dispose(close=False)  # the parent uses them

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def session_maker(makers: dict[str, Any], given: Callable[[], Any] | None, kind: str) -> Any:
    """The given maker, or the application's for this kind of session."""
    maker = given or makers.get(kind)
    if maker is None:
        name = "async_sessionmaker" if kind == ASYNC else "sessionmaker"
        raise InvalidInput(
            "job.session() does not know your engine",
            hint=f"faultline.adapters.sqlalchemy.use_sessions(app, {name}(engine))",
        )
    return maker
