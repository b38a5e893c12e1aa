"""Faultline's schema in databases of Django, test databases included."""

from __future__ import annotations

from typing import Any

from django.core import mail
from django.db import connections, transaction

from faultline.adapters.django.application import app_for
from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.connection import DjangoConnection
from faultline.postgres.migrate import migrate
from faultline.statements import epochs


def follow_django(*, using: str, **signal: Any) -> None:
    """Called after `migrate` and after `flush`, which says no plan."""
    configuration = read_configuration()
    if not configuration.migrate or using not in configuration.databases:
        return
    is_test = hasattr(mail, "outbox")  # made by setup_test_environment
    if "plan" in signal:
        migrate(app_for(using).database_url)
        if is_test:  # a parallel test runner copies the database, and its copies run jobs
            DjangoConnection(connections[using]).run(epochs.forget_database())
    elif is_test:
        forget_jobs(using)


def forget_jobs(using: str) -> None:
    """Delete all jobs of a test database, when Django empties its tables."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regclass('faultline.jobs') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return
        cursor.execute("SELECT faultline.remove_jobs(ARRAY(SELECT id FROM faultline.jobs))")
        cursor.execute("SELECT set_config('faultline.verb', 'retention', true)")
        cursor.execute("DELETE FROM faultline.ledger")
        cursor.execute("SELECT set_config('faultline.verb', '', true)")
