"""Injected faults, on a copy of the test's database."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

from faultline.adapters.django.application import DjangoFaultline
from faultline.errors import InvalidInput
from faultline.job import Job
from faultline.postgres.sessions import connect
from faultline.task import Task
from faultline.testing import ZombieReport
from faultline.testing import zombies as inject_faults
from faultline.testing.databases import administration, copy_database, drop_database, name_of
from faultline.testing.databases import url_of as url_of_database
from faultline.testing.zombies.database_control import end_other_sessions


def zombies(
    task: Task[..., Any],
    args: Mapping[str, Any] | None = None,
    *,
    invariant: Callable[[], object],
    arrange: Callable[[], object] | None = None,
    **options: Any,
) -> ZombieReport:
    """`faultline.testing.zombies` for a handler that writes by Django's ORM.

    For a TransactionTestCase, or `django_db(transaction=True)`. Each run starts from a copy of the test's
    database as it is now. `invariant` and `arrange` have no arguments, and use the ORM. The other options are
    those of `faultline.testing.zombies`.
    """
    __tracebackhide__ = True
    app = task.app
    if not isinstance(app, DjangoFaultline):
        raise InvalidInput(f"{task.name} is not a task of a Django application")

    def on_django(check: Callable[[], object]) -> Callable[[Any], object]:
        def call(_: Any) -> object:
            try:
                return check()
            finally:
                connections[app.alias].close()  # the next run replaces the database

        return call

    with _database_copy(app), _own_threads(app):
        return inject_faults(
            app,
            task,
            args,
            invariant=on_django(invariant),
            arrange=None if arrange is None else on_django(arrange),
            **options,
        )


@contextlib.contextmanager
def _own_threads(app: DjangoFaultline) -> Iterator[None]:
    """Let each attempt of an async handler run the ORM in a thread of its own.

    Django has one such thread per process. Workers that are stopped or superseded here share a process, and
    would wait for each other; outside of tests they have processes of their own.
    """

    async def on_loop(job: Job) -> AsyncIterator[None]:
        async with ThreadSensitiveContext():
            try:
                yield
            finally:
                await sync_to_async(connections.close_all, thread_sensitive=True)()

    app.hooks.attempt[:0] = [on_loop]
    try:
        yield
    finally:
        app.hooks.attempt.remove(on_loop)


@contextlib.contextmanager
def _database_copy(app: DjangoFaultline) -> Iterator[None]:
    """Let Django, in all threads, use a copy of the database until the block ends."""
    wrapper = connections[app.alias]
    if wrapper.in_atomic_block:
        raise InvalidInput(
            "workers do not see the transaction of a TestCase",
            hint="use a TransactionTestCase, or @pytest.mark.django_db(transaction=True)",
        )
    app.close()
    url = app.database_url
    own_name, name = name_of(url), f"test_faults_{secrets.token_hex(6)}"
    settings = connections.settings[app.alias]
    with administration(url_of_database(url, "postgres")) as admin:
        with connect(url, application_name="faultline testing") as conn:
            end_other_sessions(conn)
        copy_database(admin, own_name, name)
        settings["NAME"] = wrapper.settings_dict["NAME"] = name
        try:
            yield
        finally:
            app.close()
            settings["NAME"] = wrapper.settings_dict["NAME"] = own_name
            drop_database(admin, name)
