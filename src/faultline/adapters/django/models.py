"""Faultline's jobs as a model that the admin reads."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from faultline.model import JobState

_STATES = [(state.value, state.value) for state in JobState]


class StoredJob(models.Model):
    """A row of `faultline.jobs`, a table that Django neither creates nor changes."""

    id: Any = models.UUIDField(primary_key=True, editable=False)
    task: Any = models.TextField()
    queue: Any = models.TextField()
    state: Any = models.TextField(choices=_STATES)
    priority: Any = models.SmallIntegerField()
    attempts: Any = models.IntegerField()
    max_attempts: Any = models.IntegerField()
    fencing_token: Any = models.BigIntegerField()
    failed_reason: Any = models.TextField(null=True)
    last_error: Any = models.TextField(null=True)
    idempotency_key: Any = models.TextField(null=True)
    payload: Any = models.JSONField()
    lease_owner: Any = models.TextField(null=True)
    created_at: Any = models.DateTimeField()
    next_run_at: Any = models.DateTimeField()
    claimed_at: Any = models.DateTimeField(null=True)
    finished_at: Any = models.DateTimeField(null=True)

    row: Any = None  # of the statement that read it, if the admin did

    class Meta:
        managed = False
        verbose_name = "job"
        db_table = '"faultline"."jobs"'
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("retry_job", "Can retry failed jobs"),
            ("cancel_job", "Can cancel jobs"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.id}"
