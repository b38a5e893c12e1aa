"""The installed app: checks the settings and migrates the schema with Django's."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from faultline.adapters.django.application import app_for
from faultline.adapters.django.configuration import read_configuration
from faultline.postgres.migrate import migrate


class FaultlineConfig(AppConfig):
    name = "faultline.adapters.django"
    label = "faultline"
    verbose_name = "Faultline"

    def ready(self) -> None:
        read_configuration()  # a wrong name in FAULTLINE ends the start, with what is right
        post_migrate.connect(_migrate_schema, sender=self)


def _migrate_schema(*, using: str, **_: Any) -> None:
    """Install or upgrade Faultline's schema after `manage.py migrate` of its database."""
    configuration = read_configuration()
    if configuration.migrate and using in configuration.databases:
        migrate(app_for(using).database_url)
