"""The context of every command: its application, its database and its sessions."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from faultline.app import Faultline
from faultline.cli.project_settings import ProjectSettings, read_project_settings
from faultline.errors import FaultlineError, InvalidSettings
from faultline.events import log
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, explain_error
from faultline.postgres.migrate import require_current_schema
from faultline.postgres.sessions import Connection, open_session, run
from faultline.postgres.url import (
    FILE_VARIABLE,
    VARIABLE,
    url_from_environment,
    without_driver,
)
from faultline.statements import audit
from faultline.statements.audit import Actor
from faultline.suggestions import did_you_mean
from faultline.task_imports import UnknownModule, import_module
from faultline.wording import with_article

LOCK_TIMEOUT_SECONDS = 5


class Context:
    """The values of the global options, and what commands need of them.

    `app_path` and `given_url` are read when a command needs them: an option after the command's name may
    still override them, and not every command needs an application.
    """

    def __init__(
        self,
        *,
        app_path: str | None = None,
        given_url: str | None = None,
        log_format: str = "auto",
        verbose: bool = False,
    ) -> None:
        self._app_option = app_path
        self._url_option = given_url  # as it was given: the application may be of SQLAlchemy
        self.log_format = log_format
        self.verbose = verbose

    def override(self, name: str, value: Any) -> None:
        """Set a global option that was given after the command's name."""
        match name:
            case "app":
                self._app_option = value
            case "database_url":
                self._url_option = value
            case "log_format" | "verbose":
                setattr(self, name, value)
                self.open_log()

    def open_log(self) -> None:
        log.open(style=self.log_format, verbose=self.verbose)

    @cached_property
    def _project(self) -> ProjectSettings:
        return read_project_settings(Path.cwd())

    @property
    def app_path(self) -> str | None:
        """MODULE:NAME of the application, by option, environment or pyproject.toml."""
        return self._app_option or self._project.app

    @property
    def given_url(self) -> str | None:
        """The URL by option or environment; None if neither gives one."""
        if self._url_option:
            return without_driver(self._url_option)
        return url_from_environment()

    @cached_property
    def app(self) -> Faultline:
        """The user's application; without --app, an application without tasks."""
        self.export_database_url()  # the app reads it when it is imported
        if self.app_path is None:
            return Faultline(self.given_url)
        if self._app_option is None:
            return load_app(self.app_path, folder=self._project.folder)
        return load_app(self.app_path)

    def export_database_url(self) -> None:
        """Put the given URL into the environment, for the application and child processes.

        A URL that was read from a file stays in that file.
        """
        if self._url_option and not _is_exported(self._url_option):
            os.environ.pop(FILE_VARIABLE, None)
            os.environ[VARIABLE] = self._url_option

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
        return url_from_environment() == without_driver(url)
    except InvalidSettings:
        return False


def load_app(path: str, *, folder: Path | None = None) -> Faultline:
    """Import the application; its modules are found in `folder`, else in this folder."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        meant = _module_of_file(path)
        hint = f"did you mean --app {meant}:app?" if meant else "--app shop.jobs:app"
        raise InvalidSettings(f"--app {path!r} is not MODULE:NAME", hint=hint)
    sys.path.insert(0, str(folder or Path.cwd()))
    try:
        module = import_module(module_name, what="--app: ")
    except UnknownModule as error:
        meant = _module_of_file(module_name)
        raise InvalidSettings(
            error.message, hint=f"did you mean --app {meant}:{name}?" if meant else error.hint
        ) from None
    try:
        app = getattr(module, name)
    except AttributeError:
        apps = [each for each, value in vars(module).items() if isinstance(value, Faultline)]
        if apps:
            only = f"--app {module_name}:{apps[0]}" if len(apps) == 1 else None
            hint = did_you_mean(name, apps) or only or f"its Faultline objects: {', '.join(apps)}"
        else:
            hint = "name your Faultline object"
        raise InvalidSettings(
            f"--app: the module {module_name} has no {name!r}", hint=hint
        ) from None
    if not isinstance(app, Faultline):
        raise InvalidSettings(
            f"--app: {path} is {with_article(type(app).__name__)}, not a Faultline",
            hint="name your Faultline object",
        )
    return app


def _module_of_file(name: str) -> str | None:
    """The module that a path such as `shop/jobs.py` stands for; None if it is no path."""
    path = PurePath(name.removesuffix(".py"))
    is_path = name.endswith(".py") or len(path.parts) > 1
    is_module = not path.is_absolute() and all(part.isidentifier() for part in path.parts)
    return ".".join(path.parts) if is_path and is_module else None


@contextmanager
def session(context: Context) -> Iterator[Connection]:
    """A session on a database with the current schema; errors are explained."""
    with driver_errors(), context.connection() as conn:
        yield conn


@contextmanager
def with_lock_timeout(conn: Connection) -> Iterator[None]:
    """A transaction that fails if a lock is not granted within LOCK_TIMEOUT_SECONDS."""
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        yield


@contextmanager
def audited(conn: Connection, action: str, target: str | None = None) -> Iterator[None]:
    """A transaction for an operator's action, recorded in the audit log.

    The SQL function that acts writes the row. If the action is refused, PostgreSQL rolls that row back
    too, so the refusal is recorded in a second transaction, with `action` and `target`.
    """
    actor = Actor("command line", _user())
    try:
        with with_lock_timeout(conn):
            run(conn, audit.acting_for(actor))
            yield
    except (FaultlineError, DriverError) as error:
        refusal = explain_error(error) if isinstance(error, DriverError) else error
        if audit.is_refusal(refusal):
            row = audit.record_refusal(actor, action=action, target=target, code=refusal.code)
            with suppress(FaultlineError, DriverError):  # the account may lack this right too
                run(conn, row)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (
        OSError,
        KeyError,
        ImportError,
    ):  # no name: in a container, or without USERNAME on Windows
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
