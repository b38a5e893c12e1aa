"""Jobs in Django's admin: read-only, with retry and cancel for staff that may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.auth import get_permission_codename
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.job_list import DATABASE, FILTERS, JobList, app_of, stored_job
from faultline.adapters.django.models import StoredJob
from faultline.errors import FaultlineError
from faultline.model import JobState
from faultline.statements import audit, jobs, protocol
from faultline.statements.audit import Actor
from faultline.statements.statement import Statement
from faultline.wording import count

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[StoredJob]
else:
    ModelAdmin = admin.ModelAdmin

_NOW = {
    JobState.QUEUED: "queued to run",
    JobState.RUNNING: "running",
    JobState.SUCCEEDED: "had succeeded before",
    JobState.FAILED: "will not run again",
}
_MOST_REASONS = 5  # refusals that are shown, of one action
_SHOWN_JSON = 10_000  # characters


def timeline_url(job: StoredJob) -> str | None:
    """The job's timeline in the inspector, at FAULTLINE["INSPECTOR_URL"]."""
    inspector = read_configuration().inspector_url
    return None if inspector is None else f"{inspector.rstrip('/')}/#/jobs/{job.pk}"


class JobAdmin(ModelAdmin):
    """Shows the jobs of every database that FAULTLINE names.

    Users need the permission `faultline.view_storedjob`, and for the actions `faultline.retry_job` and
    `faultline.cancel_job`.
    """

    list_display = ("job_id", "task", "queue", "standing", "tries", "created_at", "due_or_ended")
    list_display_links = ("job_id",)
    list_filter = FILTERS
    list_per_page = 50
    search_fields = ("id",)
    search_help_text = "The id or the idempotency key of a job"
    sortable_by = ()
    show_full_result_count = False
    if hasattr(admin, "ShowFacets"):  # Django 5
        show_facets = admin.ShowFacets.NEVER
    actions: Any = ("retry_jobs", "cancel_jobs")
    fields: ClassVar[Any] = (
        *("id", "task", "queue", "standing", "tries", "priority", "token", "worker", "key"),
        *("created_at", "due", "claimed_at", "finished_at", "error", "arguments", "result"),
    )
    readonly_fields: ClassVar[Any] = fields

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[JobList]:
        return JobList

    def get_search_results(self, request: HttpRequest, queryset: Any, term: str) -> Any:
        return queryset, False  # the list searches by itself

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> StoredJob | None:
        try:
            found = app_of(request).execute(jobs.details_of(UUID(object_id)))
        except (ValueError, IncorrectLookupParameters):
            return None
        return None if found is None else stored_job(found)

    # ── permissions ──────────────────────────────────────────────────────────────────────────────

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        name = get_permission_codename("view", self.opts)
        return _may(request, name)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return _may(request, "retry_job")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return _may(request, "cancel_job")

    # ── actions ──────────────────────────────────────────────────────────────────────────────────

    @admin.action(description="Retry the selected failed jobs", permissions=["retry"])
    def retry_jobs(self, request: HttpRequest, queryset: Any) -> None:
        self._act(request, "retry", protocol.retry)

    @admin.action(description="Cancel the selected jobs", permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: Any) -> None:
        self._act(
            request, "cancel", lambda job: protocol.cancel(job, f"by {request.user.get_username()}")
        )

    def _act(
        self, request: HttpRequest, action: str, verb: Callable[[UUID], Statement[JobState]]
    ) -> None:
        """Act on each job whose box is checked, in its own transaction or savepoint."""
        app = app_of(request)
        address = request.META.get("REMOTE_ADDR") or None
        actor = Actor("user", request.user.get_username(), address)
        states: Counter[JobState] = Counter()
        reasons: list[str] = []
        for text in dict.fromkeys(request.POST.getlist(ACTION_CHECKBOX_NAME)):
            try:
                job_id = UUID(text)
            except ValueError:
                continue
            try:
                with transaction.atomic(using=app.alias):
                    state = app.execute(audit.by(actor, verb(job_id)))
                states[state] += 1
            except FaultlineError as error:
                reasons.append(f"{job_id}: {error}")
                if audit.is_refusal(error):
                    target = f"job {job_id}"
                    app.execute(
                        audit.record_refusal(actor, action=action, target=target, code=error.code)
                    )
        for state, number in states.items():
            text = f"{count(number, 'job')} {_NOW[state]}."
            self.message_user(request, text, messages.SUCCESS)
        for reason in reasons[:_MOST_REASONS]:
            self.message_user(request, reason, messages.ERROR)
        if more := reasons[_MOST_REASONS:]:
            self.message_user(request, f"{count(len(more), 'more job')} refused.", messages.ERROR)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of a job, with its timeline and the actions that this user may do."""
        chosen = request.GET.get(DATABASE)
        address = reverse(
            f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist",
            current_app=self.admin_site.name,
        )
        more = {
            "list_url": address if chosen is None else f"{address}?{DATABASE}={chosen}",
            "timeline_url": timeline_url(StoredJob(id=object_id)),
            "checkbox_name": ACTION_CHECKBOX_NAME,
            "may_retry": self.has_retry_permission(request),
            "may_cancel": self.has_cancel_permission(request),
        }
        return super().change_view(request, object_id, form_url, {**more, **(extra_context or {})})

    # ── columns and fields ───────────────────────────────────────────────────────────────────────

    @admin.display(description="job")
    def job_id(self, job: StoredJob) -> str:
        return str(job.pk)

    @admin.display(description="state")
    def standing(self, job: StoredJob) -> str:
        if job.row.waits_for is not None:
            return f"{job.state}, waits for the limit {job.row.waits_for}"
        return job.state if job.failed_reason is None else f"{job.state} ({job.failed_reason})"

    @admin.display(description="attempts")
    def tries(self, job: StoredJob) -> str:
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display(description="due or ended")
    def due_or_ended(self, job: StoredJob) -> Any:
        return job.finished_at or (job.next_run_at if job.state == JobState.QUEUED else None)

    @admin.display(description="due")
    def due(self, job: StoredJob) -> Any:
        return job.next_run_at if job.state == JobState.QUEUED else None

    @admin.display(description="fencing token")
    def token(self, job: StoredJob) -> Any:
        return job.row.token

    @admin.display(description="worker")
    def worker(self, job: StoredJob) -> Any:
        return job.lease_owner

    @admin.display(description="idempotency key")
    def key(self, job: StoredJob) -> Any:
        return job.idempotency_key

    @admin.display(description="last error")
    def error(self, job: StoredJob) -> Any:
        return None if job.last_error is None else format_html("<pre>{}</pre>", job.last_error)

    @admin.display(description="arguments")
    def arguments(self, job: StoredJob) -> str:
        return _shown(job.row.payload_text, job.row.payload_bytes)

    @admin.display(description="result")
    def result(self, job: StoredJob) -> str | None:
        size = job.row.result_bytes
        return None if size is None else _shown(job.row.result_text, size)


def _may(request: HttpRequest, permission: str) -> bool:
    user: Any = request.user
    return bool(user.has_perm(f"{StoredJob._meta.app_label}.{permission}"))


def _shown(text: str | None, size: int) -> str:
    """JSON as it is stored, if it fits."""
    if text is None or len(text) > _SHOWN_JSON:
        return f"{size:,} bytes; `faultline jobs show` prints them"
    return text


admin.site.register(StoredJob, JobAdmin)
