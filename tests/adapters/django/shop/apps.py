"""The shop as an installed app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.adapters.django.shop"
    label = "shop"
