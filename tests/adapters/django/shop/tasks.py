"""Handlers that write by Django's ORM, correct ones and naive ones."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

import faultline
from faultline.adapters.django import app, app_for
from tests.adapters.django.shop.models import Payment, Receipt


@app.task(name="shop.pay")
def pay(job: faultline.Job, invoice: int) -> None:
    with job.atomic():
        Payment.objects.create(invoice=invoice, token=job.token)


@app.task(name="shop.pay_with_receipt")
def pay_with_receipt(job: faultline.Job, invoice: int) -> str:
    """Pay in the job's block, with a savepoint of its own in it."""
    with job.atomic():
        payment = Payment.objects.create(invoice=invoice, token=job.token)
        with transaction.atomic():
            Receipt.objects.create(payment=payment)
        job.result = f"paid {invoice}"
    return f"paid {invoice}"


@app.task(name="shop.pay_in_own_block")
def pay_in_own_block(job: faultline.Job, invoice: int) -> None:
    with transaction.atomic():
        Payment.objects.create(invoice=invoice, token=job.token)
        job.commit(connection)


@app.task(name="shop.pay_on_given_connection")
def pay_on_given_connection(job: faultline.Job, invoice: int) -> None:
    with job.transaction(connections["default"]):
        Payment.objects.create(invoice=invoice, token=job.token)


@app.task(name="shop.pay_on_a_loop")
async def pay_on_a_loop(job: faultline.Job, invoice: int) -> None:
    """Write from an async handler, in the thread in which Django runs the ORM."""

    def write() -> None:
        with job.atomic():
            Payment.objects.create(invoice=invoice, token=job.token)

    await sync_to_async(write)()


@app.task(name="shop.pay_naively")
def pay_naively(job: faultline.Job, invoice: int) -> None:
    """The control: the payment commits without the fence."""
    with transaction.atomic():
        Payment.objects.create(invoice=invoice, token=job.token)


@app.task(name="shop.pay_naively_on_a_loop")
async def pay_naively_on_a_loop(job: faultline.Job, invoice: int) -> None:
    await Payment.objects.acreate(invoice=invoice, token=job.token)


@app.task(name="shop.count_payments")
def count_payments(job: faultline.Job) -> int:
    return Payment.objects.count()


@app.task(name="shop.count_in_child", process=True)
def count_in_child(job: faultline.Job) -> int:
    return Payment.objects.count()


@app_for("archive").task(name="shop.archive")
def archive(job: faultline.Job, invoice: int) -> None:
    """A task of the second database: its block is there."""
    with job.atomic():
        Payment.objects.using("archive").create(invoice=invoice, token=job.token)
