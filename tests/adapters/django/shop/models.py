"""The tables of the shop."""

from __future__ import annotations

from django.db import models


class Payment(models.Model):
    invoice = models.IntegerField()
    token = models.BigIntegerField(null=True)

    class Meta:
        app_label = "shop"


class Receipt(models.Model):
    """A row that refers to another, for errors at COMMIT."""

    payment = models.ForeignKey(Payment, on_delete=models.CASCADE)

    class Meta:
        app_label = "shop"
