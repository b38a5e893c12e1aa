"""`manage.py faultline_demo`: a stale worker is refused."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

import click

from faultline.adapters.django.application import app_for
from faultline.adapters.django.management.click_command import ClickCommand
from faultline.postgres.url import FILE_VARIABLE, VARIABLE


class DemoCommand(ClickCommand):
    help = (
        "Show how PostgreSQL refuses a stale worker, on a temporary server. The tables of this project are"
        " never touched."
    )
    name = "demo"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--on-server",
            action="store_true",
            help="Use scratch databases on this project's server, which are dropped afterwards.",
        )
        parser.add_argument(
            "--campaign", action="store_true", help="Then compare with a queue without a fence."
        )

    def options(self) -> list[click.Option]:
        return [each for each in super().options() if each.name != "no_campaign"]

    def handle(self, *_: Any, **given: Any) -> None:
        self._url = app_for(given["database"]).database_url if given.pop("on_server") else None
        self._more = [] if given["campaign"] else ["--no-campaign"]
        for name in (VARIABLE, FILE_VARIABLE):  # the demo would use the server that they name
            os.environ.pop(name, None)
        super().handle(**given)

    def leading(self, database: str | None) -> list[str]:
        return [] if self._url is None else ["--database-url", self._url]

    def trailing(self) -> list[str]:
        return self._more


Command = DemoCommand
