"""The names that a request may have at a place, for suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel


def names_at(annotation: Any, place: Sequence[str | int]) -> list[str]:
    """The fields of the model at `place`, a path from a value of this type; else none."""
    models = _models(annotation)
    if not place:
        return [name for model in models for name in model.model_fields]
    first, rest = place[0], place[1:]
    fields = (model.model_fields.get(str(first)) for model in models)
    return [name for field in fields if field for name in names_at(field.annotation, rest)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models of `Model` and `Model | None`."""
    kinds = get_args(annotation) or (annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
