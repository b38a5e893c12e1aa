"""`django.tasks` of Django 6, or the package django-tasks for older ones."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import django
from django.conf import settings

_NAME = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

base: Any = importlib.import_module(f"{_NAME}.base")
signals: Any = importlib.import_module(f"{_NAME}.signals")
library: Any = importlib.import_module(_NAME)
BaseTaskBackend: Any = importlib.import_module(f"{_NAME}.backends.base").BaseTaskBackend
_exceptions: Any = importlib.import_module(f"{_NAME}.exceptions")
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist


def open_backends() -> None:
    """Make the backends of the setting TASKS, which registers what workers run.

    One that cannot be imported is not Faultline's, and Django reports it where it is used.
    """
    for alias in settings.TASKS:
        with contextlib.suppress(library.task_backends.exception_class):
            library.task_backends[alias]
