"""The shop in the admin: an order and its job are one transaction."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from shop.models import Delivery, Order, Product, Shipment
from shop.tasks import ship


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "stock", "minimum")


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("product", "quantity")

    def save_model(self, request: Any, obj: Order, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:  # the admin saves in transaction.atomic(), which the job joins
            ship.options(idempotency_key=f"order-{obj.pk}").enqueue(order=obj.pk)


admin.site.register([Shipment, Delivery])
