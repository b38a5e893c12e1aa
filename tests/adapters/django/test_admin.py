"""The admin's pages of jobs, by Django's test client."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from faultline import JobState
from faultline.testing import run_until_idle
from tests.adapters.django.conftest import Configure, Shop

LIST = "/admin/faultline/storedjob/"
SignIn = Callable[..., Any]

MANY = """
    INSERT INTO faultline.jobs (task, queue, state, failed_reason, attempts, finished_at)
    SELECT 'shop.pay', CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END, 'failed', 'gave_up', 10,
        clock_timestamp() FROM generate_series(1, 20000) AS n"""


@pytest.fixture
def sign_in(shop: Shop) -> SignIn:
    """A client of a member of the staff with these permissions."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    def client(*permissions: str, superuser: bool = False) -> Any:
        user = User.objects.create_user("ada", password="pw", is_staff=True)
        user.is_superuser = superuser
        user.save()
        found = Permission.objects.filter(content_type__app_label="faultline")
        user.user_permissions.set(found.filter(codename__in=permissions))
        assert user.user_permissions.count() == len(permissions)
        signed_in = Client()
        signed_in.force_login(user)
        return signed_in

    return client


def text_of(response: Any) -> str:
    assert response.status_code == 200, response
    return html.unescape(response.content.decode())


def ids_in(response: Any) -> list[str]:
    return re.findall(r'name="_selected_action" value="([0-9a-f-]{36})"', text_of(response))


def rows_in(response: Any) -> int:
    return text_of(response).count('class="field-task"')


def act(client: Any, action: str, *job_ids: Any, query: str = "") -> str:
    """Check the boxes of these jobs and run the action; returns the next page."""
    given = {"action": action, "index": 0, "_selected_action": [str(job) for job in job_ids]}
    return text_of(client.post(LIST + query, given, follow=True))


def failed_job(shop: Shop, **arguments: Any) -> Any:
    job_id = shop.tasks.pay.enqueue(**(arguments or {"invoice": 1})).job_id
    shop.app.cancel(job_id)
    return job_id


# ── permissions ──────────────────────────────────────────────────────────────────────────────────


def test_staff_without_the_permission_see_no_job(shop: Shop, sign_in: SignIn) -> None:
    job_id = shop.tasks.pay.enqueue(invoice=1).job_id
    client = sign_in()
    assert client.get(LIST).status_code == 403
    assert client.get(f"{LIST}{job_id}/change/").status_code == 403
    assert "storedjob" not in text_of(client.get("/admin/"))


def test_who_may_only_view_can_change_nothing(shop: Shop, sign_in: SignIn) -> None:
    failed, queued = failed_job(shop), shop.tasks.pay.enqueue(invoice=2).job_id
    client = sign_in("view_storedjob")
    page = client.get(LIST)
    assert rows_in(page) == 2
    assert "retry_jobs" not in text_of(page)
    for job_id in (failed, queued):
        shown = text_of(client.get(f"{LIST}{job_id}/change/"))
        assert "retry_jobs" not in shown
        assert "cancel_jobs" not in shown
    act(client, "retry_jobs", failed)
    act(client, "cancel_jobs", queued)
    assert shop.app.get(failed).state is JobState.FAILED
    assert shop.app.get(queued).state is JobState.QUEUED


def test_each_action_needs_its_own_permission(shop: Shop, sign_in: SignIn) -> None:
    queued = shop.tasks.pay.enqueue(invoice=1).job_id
    client = sign_in("view_storedjob", "retry_job")
    page = text_of(client.get(LIST))
    assert ("retry_jobs" in page, "cancel_jobs" in page) == (True, False)
    act(client, "cancel_jobs", queued)
    assert shop.app.get(queued).state is JobState.QUEUED


def test_a_superuser_can_neither_add_nor_change_nor_delete(shop: Shop, sign_in: SignIn) -> None:
    job_id = shop.tasks.pay.enqueue(invoice=1).job_id
    client = sign_in(superuser=True)
    change = f"{LIST}{job_id}/change/"
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(change, {"task": "other"}).status_code == 403
    assert client.post(f"{LIST}{job_id}/delete/", {"post": "yes"}).status_code == 403
    assert 'name="_save"' not in text_of(client.get(change))
    act(client, "delete_selected", job_id)
    assert shop.app.get(job_id).task == "shop.pay"


# ── retry and cancel ─────────────────────────────────────────────────────────────────────────────


def test_retry_queues_failed_jobs_and_says_why_others_are_refused(
    shop: Shop, sign_in: SignIn
) -> None:
    succeeded = shop.tasks.pay.enqueue(invoice=3).job_id
    client = sign_in("view_storedjob", "retry_job")
    run_until_idle(shop.app)
    failed = [failed_job(shop, invoice=invoice) for invoice in (1, 2)]
    page = act(client, "retry_jobs", *failed, succeeded)
    assert "2 jobs queued to run." in page
    assert f"{succeeded}: job {succeeded} has succeeded; running it again" in page
    assert [shop.app.get(job).state for job in failed] == [JobState.QUEUED] * 2


@pytest.mark.parametrize("atomic", [False, True])
def test_the_audit_log_names_the_user(shop: Shop, sign_in: SignIn, atomic: bool) -> None:
    """With ATOMIC_REQUESTS too, where a refusal must not undo what was done."""
    from django.db import connections

    succeeded = shop.tasks.pay.enqueue(invoice=1).job_id
    run_until_idle(shop.app)
    queued = shop.tasks.pay.enqueue(invoice=1).job_id
    failed = failed_job(shop)
    client = sign_in("view_storedjob", "retry_job", "cancel_job")
    settings = connections["default"].settings_dict
    settings["ATOMIC_REQUESTS"] = atomic
    try:
        assert "1 job queued to run." in act(client, "retry_jobs", failed, succeeded)
        page = act(client, "cancel_jobs", succeeded, queued)
    finally:
        settings["ATOMIC_REQUESTS"] = False
    assert "1 job will not run again." in page
    record = shop.app.get(queued)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "cancelled")
    with psycopg.connect(shop.url) as conn:
        logged = conn.execute(
            "SELECT actor_kind, actor, address, action, object, result FROM faultline.audit_log"
            " WHERE actor_kind = 'user' ORDER BY id"
        ).fetchall()
    by_ada = ("user", "ada", "127.0.0.1")
    assert logged == [
        (*by_ada, "retry", f"job {failed}", "done"),
        (*by_ada, "retry", f"job {succeeded}", "refused"),
        (*by_ada, "cancel", f"job {succeeded}", "unchanged"),
        (*by_ada, "cancel", f"job {queued}", "done"),
    ]


def test_the_buttons_of_a_jobs_page_act_on_it(shop: Shop, sign_in: SignIn) -> None:
    client = sign_in("view_storedjob", "retry_job", "cancel_job")
    job_id = shop.tasks.pay.enqueue(invoice=1).job_id

    def press() -> str:
        page = text_of(client.get(f"{LIST}{job_id}/change/"))
        [form] = re.findall(r'<form method="post" action="([^"]+)">(.*?)</form>', page, re.DOTALL)
        given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[1]))
        return text_of(client.post(form[0], given, follow=True))

    assert "1 job will not run again." in press()
    assert "1 job queued to run." in press()
    assert shop.app.get(job_id).state is JobState.QUEUED


def test_actions_do_not_go_beyond_the_checked_jobs(shop: Shop, sign_in: SignIn) -> None:
    jobs = [shop.tasks.pay.enqueue(invoice=invoice).job_id for invoice in (1, 2)]
    client = sign_in("view_storedjob", "cancel_job")
    given = {"action": "cancel_jobs", "index": 0, "select_across": 1, "_selected_action": jobs[0]}
    text_of(client.post(LIST, given, follow=True))
    assert [shop.app.get(job).state for job in jobs] == [JobState.FAILED, JobState.QUEUED]


# ── what is shown ────────────────────────────────────────────────────────────────────────────────


def test_filters_show_the_jobs_that_match(shop: Shop, sign_in: SignIn) -> None:
    failed = str(failed_job(shop))
    mail = str(shop.tasks.pay.options(queue="mail").enqueue(invoice=2).job_id)
    counting = str(shop.tasks.count_payments.enqueue().job_id)
    client = sign_in("view_storedjob", "retry_job")
    for query, wanted in [
        ("", [counting, mail, failed]),
        ("?state=failed", [failed]),
        ("?queue=mail", [mail]),
        ("?task=shop.count_payments", [counting]),
        ("?state=queued&task=shop.pay", [mail]),
        ("?state=running", []),
    ]:
        assert ids_in(client.get(LIST + query)) == wanted, query
    page = text_of(client.get(f"{LIST}?task=gone.task"))
    for choice in ("?state=succeeded", "queue=mail", "task=shop.pay_with_receipt"):
        assert choice in page
    assert ">gone.task<" in re.sub(r"\s", "", page)


def test_search_finds_a_job_by_its_id_or_key(shop: Shop, sign_in: SignIn) -> None:
    key = "3f0e4a10-0000-4000-8000-00000000000z"
    ids = [
        str(shop.tasks.pay.options(idempotency_key=key).enqueue(invoice=1).job_id),
        str(shop.tasks.pay.enqueue(invoice=2).job_id),
    ]
    client = sign_in("view_storedjob", "retry_job")
    assert ids_in(client.get(LIST, {"q": f" {ids[1].upper()} "})) == [ids[1]]
    assert ids_in(client.get(LIST, {"q": key})) == [ids[0]]
    assert ids_in(client.get(LIST, {"q": ids[0], "state": "failed"})) == []
    assert ids_in(client.get(LIST, {"q": "nothing"})) == []


@pytest.mark.parametrize(
    "query", ["state=lost", "payload__invoice=1", "after=xyz", "database=notes", "queue=%00"]
)
def test_a_wrong_filter_leads_to_the_whole_list(shop: Shop, sign_in: SignIn, query: str) -> None:
    response = sign_in("view_storedjob").get(f"{LIST}?{query}")
    assert (response.status_code, response["Location"]) == (302, f"{LIST}?e=1")


def test_the_page_of_a_job_shows_it_with_its_timeline(
    shop: Shop, sign_in: SignIn, configure: Configure
) -> None:
    from django.utils.html import escape

    configure(INSPECTOR_URL="https://queue.example/inspector/")
    shop.tasks.pay.options(idempotency_key="<b>").enqueue(invoice=41)
    [job_id] = (record.id for record in shop.app.jobs())
    client = sign_in("view_storedjob")
    response = client.get(f"{LIST}{job_id}/change/")
    page = text_of(response)
    assert f'href="https://queue.example/inspector/#/jobs/{job_id}"' in page
    assert '{"invoice": 41}' in page
    assert escape("<b>") in response.content.decode()
    assert "0 of 10" in page
    for missing in (f"{LIST}01890000-0000-7000-8000-000000000000/change/", f"{LIST}x/change/"):
        assert client.get(missing).status_code == 302
    configure(INSPECTOR_URL=None)
    assert "Timeline" not in text_of(client.get(f"{LIST}{job_id}/change/"))


def test_a_large_payload_is_named_by_its_size(shop: Shop, sign_in: SignIn) -> None:
    task = shop.app.task(name="shop.large")(lambda job, text: None)
    try:
        job_id = task.enqueue(text="x" * 20_000).job_id
    finally:
        del shop.app._tasks["shop.large"]
    page = text_of(sign_in("view_storedjob").get(f"{LIST}{job_id}/change/"))
    assert "20,012 bytes" in page
    assert "xxx" not in page


def test_the_jobs_of_each_database(shop: Shop, sign_in: SignIn, archive_url: str) -> None:
    here = str(shop.tasks.pay.enqueue(invoice=1).job_id)
    there = str(shop.tasks.archive.enqueue(invoice=7).job_id)
    client = sign_in("view_storedjob", "cancel_job")
    assert ids_in(client.get(LIST)) == [here]
    page = client.get(f"{LIST}?database=archive")
    assert ids_in(page) == [there]
    [link] = re.findall(rf'href="({LIST}{there}[^"]+)"', text_of(page))
    assert "shop.archive" in text_of(client.get(link))
    assert client.get(f"{LIST}{there}/change/").status_code == 302
    assert "1 job will not run again." in act(
        client, "cancel_jobs", there, query="?database=archive"
    )
    shop.tasks.archive.app.close()
    with psycopg.connect(archive_url) as conn:
        assert conn.execute("SELECT state FROM faultline.jobs").fetchall() == [("failed",)]


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def many_jobs(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute(MANY)
        conn.execute("VACUUM ANALYZE faultline.jobs")


def rows_read(shop: Shop) -> int:
    """How many rows of jobs this connection has read so far, by any plan."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    with psycopg.connect(shop.url, autocommit=True) as conn:
        [(count,)] = conn.execute("""
            SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
            FROM pg_stat_user_tables WHERE relid = 'faultline.jobs'::regclass""").fetchall()
    return int(count)


def test_pages_do_not_read_the_whole_table(shop: Shop, many_jobs: None, sign_in: SignIn) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = sign_in("view_storedjob", "retry_job")
    for query, shown, at_least, below in [
        ("", 50, 50, 1_000),
        ("?state=failed", 50, 50, 1_000),
        ("?state=failed&queue=mail", 50, 50, 1_000),
        ("?state=queued", 0, 0, 1_000),
        ("?state=succeeded", 0, 5_000, 11_000),
        ("?task=shop.count_payments", 0, 5_000, 11_000),
    ]:
        before = rows_read(shop)
        with CaptureQueriesContext(connection) as sent:
            page = client.get(LIST + query)
        assert rows_in(page) == shown, query
        assert at_least <= rows_read(shop) - before < below, query
        counting = [each["sql"] for each in sent if "count(" in each["sql"].lower()]
        assert counting == [], query
    assert "0 jobs among the 5,000 that were examined" in text_of(page)
    assert 'class="next-page"' in text_of(page)


def test_every_job_is_on_one_page(shop: Shop, sign_in: SignIn) -> None:
    enqueued = shop.app.enqueue_many(shop.tasks.pay.job(invoice=number) for number in range(120))
    wanted = {str(each.job_id) for each in enqueued}
    client = sign_in("view_storedjob", "retry_job")
    for query in ("", "?state=queued", "?task=shop.pay"):
        found: list[str] = []
        url: str | None = LIST + query
        while url is not None:
            page = client.get(url)
            found += ids_in(page)
            links = re.findall(r'class="next-page" href="([^"]+)"', text_of(page))
            url = LIST + links[0] if links else None
        assert len(found) == len(set(found)) == 120
        assert set(found) == wanted


def test_a_link_of_a_filter_begins_at_the_first_page(shop: Shop, sign_in: SignIn) -> None:
    shop.app.enqueue_many(shop.tasks.pay.job(invoice=number) for number in range(60))
    client = sign_in("view_storedjob")
    first = text_of(client.get(LIST))
    [following] = re.findall(r'class="next-page" href="([^"]+)"', first)
    page = text_of(client.get(LIST + following))
    links = re.findall(r'href="(\?[^"]*)"', page)
    assert links
    assert not any("after" in parse_qs(urlsplit(link).query) for link in links)
