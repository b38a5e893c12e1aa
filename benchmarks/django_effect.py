"""The table of effects as a model of Django; imported once Django is configured."""

from __future__ import annotations

from typing import Any

from django.db import models


class Effect(models.Model):
    job: Any = models.UUIDField(primary_key=True)

    class Meta:
        app_label = "benchmarks"
        managed = False
        db_table = "effects"
