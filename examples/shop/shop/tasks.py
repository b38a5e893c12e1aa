"""The tasks of the shop: ship an order, and fill up the stock by a schedule."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import F

import faultline
from faultline.adapters.django import app
from shop.models import Delivery, Order, Product, Shipment

WORKER = os.environ.get("WORKER", "?")


@app.task(name="shop.ship")
def ship(job: faultline.Job, order: int) -> None:
    wanted = Order.objects.select_related("product").get(pk=order)
    if wanted.product.stock < wanted.quantity:
        raise faultline.Reject(f"not enough {wanted.product} in stock")
    print_label(wanted)
    # The naive form commits by itself, and the worker completes the job later.
    naive = os.environ.get("NAIVE")
    with transaction.atomic() if naive else job.atomic():
        product = Product.objects.filter(pk=wanted.product_id)
        product.update(stock=F("stock") - wanted.quantity)
        Shipment.objects.create(order=wanted, worker=WORKER)


def print_label(order: Order) -> None:
    """Take long, so that there is a moment at which a worker can stall."""
    if settings.LABELS:
        (Path(settings.LABELS) / f"order-{order.pk}-{WORKER}").touch()
    time.sleep(settings.LABEL_SECONDS)


@app.schedule(every=timedelta(seconds=2))
@app.task(name="shop.restock")
def restock(job: faultline.Job) -> None:
    """Fill up what is below its minimum; the result is how many products were."""
    with job.atomic():
        low = Product.objects.select_for_update().filter(stock__lt=F("minimum"))
        for product in low:
            Delivery.objects.create(product=product, quantity=product.minimum - product.stock)
            product.stock = product.minimum
            product.save(update_fields=["stock"])
        job.result = len(low)
