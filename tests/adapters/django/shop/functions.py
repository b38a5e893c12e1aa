"""Functions of `django.tasks`, or of the package django-tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from faultline.adapters.django.backend import current_job
from faultline.adapters.django.task_library import base
from tests.adapters.django.shop.models import Payment

task = base.task


@task()
def add(one: int, two: int = 0) -> int:
    return one + two


@task()
async def add_on_a_loop(one: int, two: int = 0) -> int:
    await asyncio.sleep(0)
    return one + two


@task()
def fail(message: str) -> None:
    raise LookupError(message)


@task()
def leave() -> None:
    raise SystemExit("left")


@task()
def return_a_function() -> Any:
    return add


@task(takes_context=True)
def describe(context: Any) -> list[Any]:
    result = context.task_result
    return [result.id, result.status, context.attempt]


@task(queue_name="mail", priority=100)
def mail() -> None: ...


@task()
def pay(invoice: int) -> None:
    """The payment commits with the job."""
    with current_job().atomic():
        Payment.objects.create(invoice=invoice)


@task()
def pay_naively(invoice: int) -> None:
    Payment.objects.create(invoice=invoice)
