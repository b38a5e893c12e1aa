"""The context of every command: its application, its database and its sessions."""

from __future__ import annotations

import getpass
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

from faultline.app import Faultline
from faultline.errors import DatabaseUnavailable, FaultlineError, InvalidInput, InvalidSettings
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, explain_error
from faultline.postgres.migrate import require_current_schema
from faultline.postgres.reconnecting import is_transient
from faultline.postgres.sessions import Connection, connect, open_session, run
from faultline.postgres.url import FILE_VARIABLE, VARIABLE, url_from_environment
from faultline.statements import audit
from faultline.statements.audit import Actor

LOCK_TIMEOUT_SECONDS = 5


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
    except (OSError, KeyError):  # a container's account may have no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def require_schema(url: str, check: Callable[[Connection], None]) -> None:
    """Raise an error for a wrong schema, but wait for an unreachable server later."""
    try:
        with connect(url, application_name="faultline cli") as conn:
            check(conn)
    except (DatabaseUnavailable, DriverError) as error:
        if not is_transient(error):
            raise
