"""The context of every command: which application and database it uses."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from faultline.app import Faultline
from faultline.errors import InvalidInput, InvalidSettings
from faultline.postgres.migrate import require_current_schema
from faultline.postgres.sessions import Connection, open_session
from faultline.postgres.url import FILE_VARIABLE, VARIABLE, url_from_environment


@dataclass
class Context:
    app_path: str | None
    given_url: str | None = field(repr=False)  # it may hold a password
    log_format: str
    verbose: bool

    @cached_property
    def app(self) -> Faultline:
        """The user's application; without --app, an application without tasks."""
        self.export_database_url()  # the app reads it when it is imported
        if self.app_path is None:
            return Faultline(self.given_url)
        return load_app(self.app_path)

    def export_database_url(self) -> None:
        """Put the given URL into the environment, for the application and child processes.

        A URL that was read from a file stays in that file.
        """
        if self.given_url and not _is_exported(self.given_url):
            os.environ.pop(FILE_VARIABLE, None)
            os.environ[VARIABLE] = self.given_url

    @property
    def database_url(self) -> str:
        return self.given_url or self.app.database_url

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A session on a database that has the current schema."""
        with open_session(self.database_url, application_name="faultline cli")[0] as conn:
            require_current_schema(conn)
            yield conn


def _is_exported(url: str) -> bool:
    try:
        return url_from_environment() == url
    except InvalidSettings:
        return False


def _broken_app(module_name: str, error: Exception) -> InvalidInput:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return InvalidInput(
        f"--app: importing {module_name} failed: {type(error).__name__}: {error}{where}",
        hint=f"python -c 'import {module_name}' shows the whole traceback",
    )


def load_app(path: str) -> Faultline:
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InvalidInput(f"--app {path!r} is not MODULE:NAME", hint="--app shop.jobs:app")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the entry Python itself would put there
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise InvalidInput(
                f"--app: there is no module {error.name!r}",
                hint="run the command in your project's folder, or install your project",
            ) from None
        raise _broken_app(module_name, error) from error
    except Exception as error:
        raise _broken_app(module_name, error) from error
    try:
        app = getattr(module, name)
    except AttributeError:
        raise InvalidInput(
            f"--app: the module {module_name} has no {name!r}", hint="name your Faultline object"
        ) from None
    if not isinstance(app, Faultline):
        raise InvalidInput(
            f"--app: {path} is a {type(app).__name__}, not a Faultline",
            hint="name your Faultline object",
        )
    return app
