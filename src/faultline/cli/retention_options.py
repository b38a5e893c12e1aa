"""The options --keep-…-days, which `worker`, `reconciler` and `purge` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from faultline.config import Retention

DEFAULTS = Retention()
Command = Callable[..., None]


def retention_options(command: Command) -> Command:
    """Add the options for retention; the command gets their values as `retention`."""

    @functools.wraps(command)
    def with_retention(
        *args: Any,
        keep_succeeded_days: float,
        keep_failed_days: float,
        keep_ledger_days: float,
        keep_audit_days: float,
        **rest: Any,
    ) -> None:
        retention = Retention(
            succeeded_days=keep_succeeded_days,
            failed_days=keep_failed_days,
            ledger_days=keep_ledger_days,
            audit_days=keep_audit_days,
        )
        command(*args, retention=retention, **rest)

    for name, days, records in (
        ("audit", DEFAULTS.audit_days, "entries of the audit log"),
        ("ledger", DEFAULTS.ledger_days, "entries of the ledger"),
        ("failed", DEFAULTS.failed_days, "failed jobs"),
        ("succeeded", DEFAULTS.succeeded_days, "succeeded jobs"),
    ):
        add = click.option(
            f"--keep-{name}-days",
            default=days,
            show_default=True,
            envvar=f"FAULTLINE_KEEP_{name.upper()}_DAYS",
            help=f"How long to keep {records}; 0 keeps them for ever.",
        )
        with_retention = add(with_retention)
    return with_retention
