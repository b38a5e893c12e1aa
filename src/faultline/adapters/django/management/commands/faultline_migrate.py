"""`manage.py faultline_migrate`: installs or upgrades Faultline's schema."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from faultline.adapters.django.application import app_for
from faultline.adapters.django.configuration import read_configuration
from faultline.errors import FaultlineError
from faultline.postgres.errors import driver_errors
from faultline.postgres.migrate import migrate


class MigrateCommand(BaseCommand):
    help = "Install or upgrade Faultline's schema; `migrate` does it too, unless a setting says no."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--database",
            choices=read_configuration().databases,
            help="The alias of the database. If absent, every one that FAULTLINE names.",
        )
        parser.add_argument(
            "--roles", action="store_true", help="Also create the roles for least privilege."
        )

    def handle(self, *_: Any, database: str | None = None, roles: bool = False, **__: Any) -> None:
        for alias in [database] if database else read_configuration().databases:
            try:
                with driver_errors():
                    report = migrate(app_for(alias).database_url, roles=roles)
            except FaultlineError as error:
                raise CommandError(f"{alias}: {error}") from error
            done = ", ".join(report.applied) or "nothing to do"
            self.stdout.write(f"{alias}: the schema is at version {report.version} ({done})")


Command = MigrateCommand
