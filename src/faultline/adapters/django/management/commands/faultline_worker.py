"""`manage.py faultline_worker`: runs jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.management.click_command import ClickCommand, checked_defaults


class WorkerCommand(ClickCommand):
    help = "Run jobs until SIGTERM or SIGINT, with the options of `faultline worker`."
    name = "worker"

    def defaults(self) -> Mapping[str, Any]:
        return checked_defaults(read_configuration().worker, self.options())


Command = WorkerCommand
