"""Applications on the databases of a Django project."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import TypeVar

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import (
    Error,
    InterfaceError,
    OperationalError,
    connections,
)
from django.utils.module_loading import autodiscover_modules

from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.connection import alias_of_attempt, replace_lost_connections
from faultline.adapters.django.database_url import url_of
from faultline.app import Faultline
from faultline.errors import DatabaseRefused, DatabaseUnavailable, FaultlineError, InvalidSettings
from faultline.job import Job
from faultline.postgres.answer_limit import answered_within
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, explain_error
from faultline.postgres.sessions import connect, run
from faultline.statements.statement import Statement
from faultline.user_connections import AnyConnection

T = TypeVar("T")


class DjangoFaultline(Faultline):
    """The application of one database of Django.

    Its methods run on Django's connection of the calling thread: in the transaction that is open there, or
    in one of their own. The `_async` methods do so in the thread in which Django runs the ORM for this event
    loop. With `FAULTLINE["JOIN_TRANSACTIONS"] = False` they use connections of their own.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(imports=read_configuration().imports)
        self.alias = alias
        self._pooled_url: str | None = None
        self.hooks.child_imports.append("faultline.adapters.django.child_setup")
        self.around_attempt(self._in_thread)
        self.around_attempt(self._on_loop)

    @property
    def database_url(self) -> str:
        url = self._given_url or url_of(self.alias)
        if self._pooled_url not in (None, url):  # the test runner has changed the database's name
            self.producer.close()
        self._pooled_url = url
        return url

    def import_tasks(self) -> None:
        """Import the `tasks` modules of the installed apps, and those of `imports`."""
        if not apps.ready:
            django.setup()
        autodiscover_modules("tasks")
        super().import_tasks()
        if getattr(settings, "TASKS", None) and (
            django.VERSION >= (6, 0) or find_spec("django_tasks")
        ):
            from faultline.adapters.django.task_library import open_backends

            open_backends()

    def execute(self, statement: Statement[T], conn: AnyConnection | None = None) -> T:
        if conn is not None or not read_configuration().join_transactions:
            return super().execute(statement, conn)
        if on_event_loop():
            return self._execute_on_loop(statement)
        wrapper = connections[self.alias]
        if wrapper.in_atomic_block:
            return super().execute(statement, wrapper)
        try:
            return super().execute(statement, wrapper)
        except Error as error:
            wrapper.close_if_unusable_or_obsolete()  # the next call connects again
            raise _explained(error) from error

    async def execute_async(self, statement: Statement[T], conn: AnyConnection | None = None) -> T:
        if conn is not None or not read_configuration().join_transactions:
            return await super().execute_async(statement, conn)
        return await sync_to_async(self.execute, thread_sensitive=True)(statement)

    def close(self) -> None:
        """Close this thread's connection to the database too, unless a block is open."""
        super().close()
        wrapper = connections[self.alias]
        if wrapper.vendor == "postgresql" and not (wrapper.in_atomic_block or on_event_loop()):
            wrapper.close()

    def _execute_on_loop(self, statement: Statement[T]) -> T:
        """Run a plain method's statement where Django refuses its connections.

        In a session of its own, which ends: Django could not drop a test database while a pool is open.
        """
        limit = self.producer.timeout_seconds
        with (
            driver_errors(),
            connect(self.database_url, needs_primary=True, connect_seconds=limit) as own,
            answered_within(own, limit),
        ):
            return run(own, statement)

    # ── around attempts ──────────────────────────────────────────────────────────────────────────

    def _in_thread(self, job: Job) -> Iterator[None]:
        """Replace connections that the server has ended, as Django does around requests."""
        alias_of_attempt.set(self.alias)
        if on_event_loop():  # an async handler, whose ORM calls run in another thread
            yield
            return
        replace_lost_connections()
        try:
            yield
        finally:
            replace_lost_connections()

    async def _on_loop(self, job: Job) -> AsyncIterator[None]:
        """The same for async handlers, in the thread in which their ORM calls run."""
        replace = sync_to_async(replace_lost_connections, thread_sensitive=True)
        await replace()
        try:
            yield
        finally:
            await replace()


def on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _explained(error: Error) -> FaultlineError:
    """An error outside of the caller's transactions, as the plain methods raise it."""
    cause = error.__cause__
    if isinstance(cause, DriverError):
        return explain_error(cause)
    text = " ".join(str(error).split())
    if isinstance(error, OperationalError | InterfaceError):
        return DatabaseUnavailable(f"PostgreSQL cannot be reached or ended the session: {text}")
    return DatabaseRefused(f"PostgreSQL refused: {text}")


_applications: dict[str, DjangoFaultline] = {}
_making = threading.Lock()


def app_for(alias: str | None = None) -> DjangoFaultline:
    """The application of a database, by its alias, or of FAULTLINE["DATABASE"]."""
    configuration = read_configuration()
    name = configuration.database if alias is None else alias
    if name not in configuration.databases:
        raise InvalidSettings(
            f"FAULTLINE names no database {name!r}",
            hint=f'it names {", ".join(configuration.databases)}; add others to "MORE_DATABASES"',
        )
    with _making:
        if name not in _applications:
            _applications[name] = DjangoFaultline(name)
        return _applications[name]
