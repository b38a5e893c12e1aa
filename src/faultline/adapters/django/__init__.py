"""Faultline as an installed app of Django, "faultline.adapters.django".

`app` is the application on the database that the setting FAULTLINE names, the default one if none is named.
It is made on its first use, because Django imports this package before its settings need be complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultline.adapters.django.application import DjangoFaultline, app_for

if TYPE_CHECKING:
    app: DjangoFaultline

__all__ = ["DjangoFaultline", "app", "app_for"]


def __getattr__(name: str) -> Any:
    if name == "app":
        return app_for()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
