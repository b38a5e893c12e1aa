"""The tests of the shop: python manage.py test."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from django.test import TestCase, TransactionTestCase, override_settings

from faultline.adapters.django.testing import run_jobs, zombies
from faultline.testing import ZombieEffect
from shop.models import Delivery, Order, Product, Shipment
from shop.tasks import restock, ship


def order_of(quantity: int) -> Order:
    product = Product.objects.create(name="mug", stock=10)
    return Order.objects.create(product=product, quantity=quantity)


def shipped_once() -> None:
    assert Product.objects.get().stock == 7
    assert Shipment.objects.count() == 1


@override_settings(LABEL_SECONDS=0)
class ShopTest(TestCase):
    def test_an_order_is_shipped(self) -> None:
        ship.enqueue(order=order_of(3).pk)
        run_jobs()
        shipped_once()

    def test_an_order_of_more_than_there_is_fails(self) -> None:
        ship.enqueue(order=order_of(11).pk)
        [attempted] = run_jobs(raise_errors=False)
        assert "not enough mug" in str(attempted.error)
        assert Product.objects.get().stock == 10

    def test_what_is_below_its_minimum_is_filled_up(self) -> None:
        Product.objects.create(name="poster", stock=2, minimum=20)
        restock.enqueue()
        restock.enqueue()
        assert [attempted.result for attempted in run_jobs()] == [1, 0]
        assert Product.objects.get().stock == 20
        assert Delivery.objects.get().quantity == 18


@override_settings(LABEL_SECONDS=0)
class FaultsTest(TransactionTestCase):
    """With a fault at each database call: killed, stopped, cut off, superseded."""

    def test_an_order_is_shipped_once(self) -> None:
        zombies(ship, {"order": order_of(3).pk}, invariant=shipped_once)

    def test_the_naive_form_ships_it_twice(self) -> None:
        order = order_of(3).pk
        with mock.patch.dict(os.environ, NAIVE="1"), pytest.raises(ZombieEffect):
            zombies(ship, {"order": order}, invariant=shipped_once)

    def test_the_stock_is_filled_up_once(self) -> None:
        Product.objects.create(name="poster", stock=2, minimum=20)

        def filled_up_once() -> None:
            assert Product.objects.get().stock == 20
            assert Delivery.objects.count() == 1

        zombies(restock, {}, invariant=filled_up_once)
