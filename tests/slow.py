"""Marks variants of a parametrised test that only `make test-slow` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_unless(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of which all but the `kept` ones are marked slow."""
    every = list(values)
    unknown = [value for value in kept if value not in every]
    assert not unknown, f"not among the parameters: {unknown}"
    return [value if value in kept else _slow(value) for value in every]


def _slow(value: Any) -> Any:
    """One set of parameters; a tuple holds one value for each name."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
