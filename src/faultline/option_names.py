"""Refuses a mistyped option with the closest name, at run time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from faultline.errors import InvalidInput
from faultline.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


def names_options(method: F) -> F:
    """Make a method raise InvalidInput for an unknown keyword.

    The type of the method stays the same, so type checkers give their own suggestion.
    """
    parameters = inspect.signature(method).parameters.values()
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    accepted = {each.name for each in parameters}

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= accepted:
            unknown = next(name for name in kwargs if name not in accepted)
            raise InvalidInput(
                f"{method.__name__} has no option {unknown!r}",
                hint=did_you_mean(unknown, known) or f"it has {', '.join(known)}",
            )
        return method(*args, **kwargs)

    return called  # type: ignore[return-value]
