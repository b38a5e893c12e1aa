"""The installed app: checks the settings, and keeps the schema with Django's."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.schema import follow_django


class FaultlineConfig(AppConfig):
    name = "faultline.adapters.django"
    label = "faultline"
    verbose_name = "Faultline"

    def ready(self) -> None:
        read_configuration()  # a wrong name in FAULTLINE ends the start, with what is right
        post_migrate.connect(follow_django, sender=self)
