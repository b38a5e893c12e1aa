"""The methods of an application with which operators read and change limits."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from faultline.limits import Rate, operator_values
from faultline.postgres.sessions import AsyncConnection, Connection
from faultline.statements import limits
from faultline.statements.limits import LimitUse
from faultline.statements.statement import Statement

T = TypeVar("T")


class LimitMethods:
    """A base class of `Faultline`, which runs the statements."""

    if TYPE_CHECKING:

        def execute(self, statement: Statement[T], conn: Connection | None = None) -> T: ...
        def execute_async(
            self, statement: Statement[T], conn: AsyncConnection | None = None
        ) -> Coroutine[Any, Any, T]: ...
        def operate(self, action: str, target: str, statement: Statement[T]) -> T: ...
        def operate_async(
            self, action: str, target: str, statement: Statement[T]
        ) -> Coroutine[Any, Any, T]: ...

    def limits(self) -> list[LimitUse]:
        """All limits by name, with how many jobs run and wait under each."""
        return self.execute(limits.uses())

    async def limits_async(self) -> list[LimitUse]:
        return await self.execute_async(limits.uses())

    def set_limit(
        self, name: str, *, concurrency: int | None = None, rate: Rate | None = None
    ) -> None:
        """Set a limit as an operator, at once and for all workers.

        `name` is `queue:QUEUE`, `task:TASK` or `key:NAME`. The arguments are the whole limit. They stay, also
        if the code declares others, until `reset_limit`.
        """
        verb = limits.set_limit(name, **operator_values(name, concurrency, rate)._asdict())
        self.operate("set limit", f"limit {name}", verb)

    async def set_limit_async(
        self, name: str, *, concurrency: int | None = None, rate: Rate | None = None
    ) -> None:
        verb = limits.set_limit(name, **operator_values(name, concurrency, rate)._asdict())
        await self.operate_async("set limit", f"limit {name}", verb)

    def reset_limit(self, name: str) -> str:
        """Return a limit to the values of the code (`declared`), or remove it (`removed`)."""
        return self.operate("reset limit", f"limit {name}", limits.reset(name))

    async def reset_limit_async(self, name: str) -> str:
        return await self.operate_async("reset limit", f"limit {name}", limits.reset(name))
