"""The applications by the aliases of their databases, for commands.

`faultline worker --app faultline.adapters.django.databases:default` runs the worker of one.
"""

from __future__ import annotations

from faultline.adapters.django.application import DjangoFaultline, app_for
from faultline.errors import InvalidSettings


def __getattr__(alias: str) -> DjangoFaultline:
    try:
        return app_for(alias)
    except InvalidSettings as error:
        raise AttributeError(str(error)) from error
