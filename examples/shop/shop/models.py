"""Products, orders, and what left or entered the stock."""

from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=100)
    stock = models.IntegerField()
    minimum = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"


class Shipment(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    worker = models.CharField(max_length=100)


class Delivery(models.Model):
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField()
