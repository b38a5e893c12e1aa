"""The list of jobs in the admin, in pages that do not count the table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.html import format_html

from faultline.adapters.django.application import DjangoFaultline, app_for
from faultline.adapters.django.configuration import read_configuration
from faultline.adapters.django.models import StoredJob
from faultline.errors import InvalidInput
from faultline.job_selection import job_filter
from faultline.model import JobState
from faultline.statements import job_pages, jobs, queues
from faultline.statements.jobs import JobRow
from faultline.wording import count

DATABASE = "database"
_AFTER = "after"  # the cursor of a page
_MOST_QUEUES = 100  # in the sidebar


def app_of(request: HttpRequest) -> DjangoFaultline:
    """The application of the database that the address names."""
    alias = request.GET.get(DATABASE)
    if alias is not None and alias not in read_configuration().databases:
        raise IncorrectLookupParameters(f"no database {alias!r}")
    return app_for(alias)


def stored_job(row: JobRow) -> StoredJob:
    """An object of the model, with `row` for what the model has no field for."""
    fields = {field.attname for field in StoredJob._meta.concrete_fields}
    found = StoredJob(**{name: getattr(row, name) for name in fields if hasattr(row, name)})
    found.row = row
    return found


class _Filter(admin.SimpleListFilter):
    """A choice in the sidebar; the list reads its value and makes the page from it."""

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset

    def with_chosen(self, names: list[str]) -> list[tuple[str, str]]:
        chosen = self.value()
        more = [] if chosen is None or chosen in names else [chosen]
        return [(name, name) for name in (*names, *more)]


class StateFilter(_Filter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in JobState]


class QueueFilter(_Filter):
    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counts = app_of(request).execute(queues.queues(exact_up_to=1))
        names = sorted({counted.queue for counted in counts})
        return self.with_chosen(names[:_MOST_QUEUES])


class TaskFilter(_Filter):
    """The tasks of this project; those of the table are in no index."""

    title = "task"
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        app = app_of(request)
        app.import_tasks()
        return self.with_chosen(sorted(app.tasks))


class DatabaseFilter(_Filter):
    title = "database"
    parameter_name = DATABASE

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        aliases = read_configuration().databases
        return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []


FILTERS: list[Any] = [StateFilter, QueueFilter, TaskFilter, DatabaseFilter]


class JobList(ChangeList):
    """A page of at most `list_per_page` jobs, and the address of the next one."""

    after: str | None = None
    next_page: str | None = None
    summary: str = ""

    def get_filters(self, request: HttpRequest) -> Any:
        # Of this page alone: the links of filters begin at the first page.
        self.after = self.params.pop(_AFTER, self.after)
        getattr(self, "filter_params", {}).pop(_AFTER, None)  # Django 5
        found = super().get_filters(request)
        if unknown := found[2]:  # would be ignored
            raise IncorrectLookupParameters(f"no filter {next(iter(unknown))!r}")
        return found

    def get_results(self, request: HttpRequest) -> None:
        try:
            page = self._page(request)
        except InvalidInput as error:  # a value that no job can have, or another list's cursor
            raise IncorrectLookupParameters(str(error)) from error
        self.result_list: Any = [stored_job(row) for row in page.jobs]
        self.result_count = len(page.jobs)
        self.show_full_result_count = False
        self.show_admin_actions = bool(page.jobs)
        self.full_result_count: Any = None
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(self.result_list, self.list_per_page)
        self.next_page = page.next and self.get_query_string({_AFTER: page.next})
        shown = count(len(page.jobs), "job")
        self.summary = (
            f"{shown} among the {page.examined:,} that were examined"
            if page.is_cut_short
            else shown
        )

    def url_for_result(self, result: Any) -> str:
        url = super().url_for_result(result)
        chosen = self.params.get(DATABASE)
        return url if chosen is None else str(format_html("{}?{}={}", url, DATABASE, chosen))

    def _page(self, request: HttpRequest) -> job_pages.JobRowPage:
        app = app_of(request)
        names = (StateFilter.parameter_name, QueueFilter.parameter_name, TaskFilter.parameter_name)
        wanted: Any = {name: self.params.get(name) or None for name in names}
        searched = self.query.strip()
        if not searched:
            statement = job_pages.page(
                job_filter(**wanted), limit=self.list_per_page, after=self.after
            )
            return app.execute(statement)
        if (job_id := _as_id(searched)) is None:
            by_key = app.execute(jobs.job_by_key(searched))
            ids = [] if by_key is None else [by_key.id]
        else:
            ids = [job_id]
        statement = job_pages.page(job_filter(**wanted, ids=ids), limit=1)
        return app.execute(statement)


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
