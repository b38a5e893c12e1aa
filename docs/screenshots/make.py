"""Makes the screenshots in this folder from a real run.

Starts an embedded PostgreSQL and real workers on a small shop (shop.py). One worker is stopped until its
lease expires and another takes over. Headless Chromium opens the inspector. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import shop
from playwright.sync_api import Browser, Page, sync_playwright

from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline_drills.processes.observed_process import ObservedProcess

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 40.0
DESKTOP = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHART_SECONDS = 60.0  # of data for the charts

# Running jobs of the worker that will be stopped: the one that serves only the queue reports.
_JOBS_OF_STOPPED_WORKER = (
    "SELECT FROM faultline.jobs AS j JOIN faultline.workers AS w ON w.id = j.lease_owner"
    " WHERE j.state = 'running' AND w.queues = '{reports}'"
)

Connection = psycopg.Connection[Any]


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen in {TIMEOUT_SECONDS:g} s")
        time.sleep(0.02)
    return result


class Shop:
    """The shop's database and its processes."""

    def __init__(self, url: str, processes: contextlib.ExitStack) -> None:
        self.url = url
        self.conn = processes.enter_context(psycopg.connect(url, autocommit=True))
        self._processes = processes
        self.conn.execute("CREATE SCHEMA shop; CREATE TABLE shop.payments (invoice int)")

    def worker(self, queues: str, *options: str) -> ObservedProcess:
        return self._run("worker", "--queues", queues, *options)

    def inspector(self, reports: Path) -> str:
        process = self._run("inspector", "serve", "--port", "0", "--reports", str(reports))

        def address() -> str | None:
            found = re.search(r"http://[\d.]+:\d+", "\n".join(process.stray_lines))
            return found and found[0]

        return str(wait_until(address, "the inspector's start"))

    def _run(self, command: str, *options: str) -> ObservedProcess:
        environment = {"PYTHONPATH": str(HERE)}
        process = ObservedProcess(
            command,
            app="shop:app",
            url=self.url,
            command=command,
            options=options,
            environment=environment,
        )
        self._processes.callback(process.end)
        return process

    def has(self, query: str, *params: object) -> bool:
        return self.conn.execute(query, params).fetchone() is not None


def stage_takeover(shop_: Shop) -> str:
    """Stop a worker during a charge until a takeover; resume it; return the job's id."""
    charge = shop.charge.options(conn=shop_.conn, idempotency_key="invoice-4711")
    enqueued = charge.enqueue(invoice=4711, seconds=1.6)
    job_id = str(enqueued.job_id)
    lease = ("--lease-seconds", "2.5", "--no-self-fencing", "--max-jobs", "1")
    first = shop_.worker("billing", *lease)
    held = "SELECT FROM faultline.jobs WHERE id = %s AND fencing_token = %s"
    wait_until(lambda: shop_.has(held, job_id, 1), "the first claim")
    time.sleep(0.5)
    first.stop()
    second = shop_.worker("billing", *lease)
    wait_until(lambda: shop_.has(held, job_id, 2), "the takeover")
    time.sleep(0.7)
    first.resume()  # its sleep is over, so it tries to commit almost at once
    wait_until(
        lambda: shop_.has("SELECT FROM faultline.rejections WHERE job_id = %s", job_id),
        "the refusal",
    )
    for process in (second, first):
        process.wait(TIMEOUT_SECONDS)
    return job_id


@contextlib.contextmanager
def traffic(shop_: Shop) -> Iterator[None]:
    """Enqueue jobs in waves until the block ends."""
    stopped = threading.Event()

    def enqueue_waves() -> None:
        with psycopg.connect(shop_.url, autocommit=True) as conn:
            for round_ in range(10_000):
                if stopped.wait(0.25):
                    return
                wave = 6 + 10 * (round_ % 60 < 16)
                for number in range(wave):
                    shop.send_receipt.options(conn=conn).enqueue(invoice=round_ * 100 + number)
                if round_ % 2:
                    shop.charge.options(conn=conn).enqueue(invoice=round_)
                if round_ % 8 == 0:
                    shop.render_report.options(conn=conn).enqueue(month="2026-11")
                if round_ % 40 == 0:
                    shop.sync_stock.options(conn=conn).enqueue(warehouse="lisbon")

    producer = threading.Thread(target=enqueue_waves, daemon=True)
    producer.start()
    try:
        yield
    finally:
        stopped.set()
        producer.join(TIMEOUT_SECONDS)


class Camera:
    """Opens pages of the inspector and saves screenshots."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    def open(self, *, scheme: str = "light", viewport: dict[str, int] = DESKTOP) -> Page:
        page = self._browser.new_page(
            viewport=viewport,
            color_scheme=scheme,
            device_scale_factor=2 if viewport is PHONE else 1.5,
            is_mobile=viewport is PHONE,
            reduced_motion="reduce",
            timezone_id="UTC",
        )
        self.show(page, "overview")
        return page

    def show(self, page: Page, route: str) -> None:
        page.goto(f"{self._url}/#/{route}")
        page.wait_for_selector(".connection-state[data-connection=open]", state="attached")
        page.wait_for_selector(".skeleton", state="detached")
        page.wait_for_timeout(400)  # charts and fonts

    def shoot(
        self, page: Page, name: str, route: str | None = None, *, whole: bool = False
    ) -> None:
        if route is not None:
            self.show(page, route)
        page.screenshot(path=HERE / f"{name}.png", full_page=whole)
        print(f"docs/screenshots/{name}.png")


def take_pictures(
    shop_: Shop, camera: Camera, job_id: str, stopped_worker: ObservedProcess, has_reports: bool
) -> None:
    light, dark = camera.open(), camera.open(scheme="dark")
    phone = camera.open(viewport=PHONE)
    time.sleep(CHART_SECONDS)
    camera.shoot(light, "overview")
    camera.shoot(dark, "overview-dark")
    camera.shoot(phone, "overview-phone")
    for page, suffix in ((light, ""), (dark, "-dark"), (phone, "-phone")):
        camera.shoot(page, f"timeline{suffix}", f"jobs/{job_id}")
    for page in (light, phone):
        camera.show(page, "leases")
    wait_until(
        lambda: shop_.has(_JOBS_OF_STOPPED_WORKER), "a claim of the worker that is stopped next"
    )
    stopped_worker.stop()  # its leases begin to expire
    for page, name in ((light, "leases"), (phone, "leases-phone")):
        page.wait_for_selector(".badge[data-tone=warn], .badge[data-tone=bad]")
        camera.shoot(page, name)
    shop_.conn.execute("ANALYZE faultline.jobs")  # the number of succeeded jobs is an estimate
    for route in ("workers", "queues", "rejections", "audit", "jobs?state=failed"):
        camera.shoot(light, route.partition("?")[0], route)
    if has_reports:
        camera.shoot(light, "reports", "reports", whole=True)
    else:
        print("no screenshot of the reports page: the folder has no summaries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--reports",
        type=Path,
        default=Path("reports/latest"),
        help="folder with the summaries to show",
    )
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        raise SystemExit("no Chromium found: install one")
    with embedded.temporary_server() as server, contextlib.ExitStack() as processes:
        migrate(server.url)
        shop_ = Shop(server.url, processes)
        url = shop_.inspector(arguments.reports.resolve())
        job_id = stage_takeover(shop_)
        shop_.conn.execute(
            "SELECT faultline.enqueue('newsletter.send', '{}', 'newsletter', 5, now() + interval '1 day')"
        )
        shop_.conn.execute("SELECT faultline.pause_queue('newsletter', 'waiting for legal review')")
        stopped_worker = shop_.worker("reports", "--lease-seconds", "8", "--concurrency", "3")
        shop_.worker("reports,billing", "--lease-seconds", "10")
        shop_.worker("mail,billing", "--concurrency", "3")
        shop_.worker("mail,stock", "--concurrency", "2")
        with traffic(shop_), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            has_reports = any(arguments.reports.glob("*summary.json"))
            take_pictures(shop_, Camera(browser, url), job_id, stopped_worker, has_reports)
            browser.close()


if __name__ == "__main__":
    main()
