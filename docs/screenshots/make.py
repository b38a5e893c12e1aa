"""Makes the pictures in this folder from a real run: python docs/screenshots/make.py

A PostgreSQL of its own, real workers on a small shop (shop.py), one of them stopped past its lease while
another takes over, and a headless Chromium that looks at the inspector. Takes about two minutes.
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
from faultline.migrate import migrate
from faultline_drills.witness import Witness

HERE = Path(__file__).parent
BOUND_SECONDS = 40.0
DESK = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WATCHED_SECONDS = 60.0  # so that the charts have something to show

# Of the worker that serves one queue alone.
_HELD_BY_THE_SILENT = (
    "SELECT FROM faultline.jobs AS j JOIN faultline.workers AS w ON w.id = j.lease_owner"
    " WHERE j.state = 'running' AND w.queues = '{reports}'"
)

Connection = psycopg.Connection[Any]


def until(condition: Callable[[], Any], what: str) -> Any:
    give_up_at = time.monotonic() + BOUND_SECONDS
    while not (answer := condition()):
        if time.monotonic() > give_up_at:
            raise SystemExit(f"{what} did not happen in {BOUND_SECONDS:g} s")
        time.sleep(0.02)
    return answer


class Shop:
    """The shop's database, and the processes that work on it."""

    def __init__(self, url: str, processes: contextlib.ExitStack) -> None:
        self.url = url
        self.conn = processes.enter_context(psycopg.connect(url, autocommit=True))
        self._processes = processes
        self.conn.execute("CREATE SCHEMA shop; CREATE TABLE shop.payments (invoice int)")

    def worker(self, queues: str, *options: str) -> Witness:
        return self._run("worker", "--queues", queues, *options)

    def inspector(self, reports: Path) -> str:
        witness = self._run("inspector", "serve", "--port", "0", "--reports", str(reports))

        def address() -> str | None:
            found = re.search(r"http://[\d.]+:\d+", "\n".join(witness.stray_lines))
            return found and found[0]

        return str(until(address, "the inspector's start"))

    def _run(self, command: str, *options: str) -> Witness:
        found_here = {"PYTHONPATH": str(HERE)}
        witness = Witness(
            command,
            app="shop:app",
            url=self.url,
            command=command,
            options=options,
            environment=found_here,
        )
        self._processes.callback(witness.end)
        return witness

    def has(self, query: str, *params: object) -> bool:
        return self.conn.execute(query, params).fetchone() is not None


def stage_takeover(shop_: Shop) -> str:
    """A worker stops in the middle of a charge, another takes over, the first comes back: the job's id."""
    enqueued = shop.charge.enqueue(
        invoice=4711, seconds=1.6, conn=shop_.conn, idempotency_key="invoice-4711"
    )
    job_id = str(enqueued.job_id)
    lease = ("--lease-seconds", "2.5", "--no-self-fencing", "--max-jobs", "1")
    first = shop_.worker("billing", *lease)
    held = "SELECT FROM faultline.jobs WHERE id = %s AND fencing_token = %s"
    until(lambda: shop_.has(held, job_id, 1), "the first claim")
    time.sleep(0.5)
    first.stop()
    second = shop_.worker("billing", *lease)
    until(lambda: shop_.has(held, job_id, 2), "the takeover")
    time.sleep(0.7)
    first.resume()  # it has slept through its own work: it commits almost at once
    until(
        lambda: shop_.has("SELECT FROM faultline.rejections WHERE job_id = %s", job_id),
        "the refusal",
    )
    for witness in (second, first):
        witness.wait(BOUND_SECONDS)
    return job_id


@contextlib.contextmanager
def traffic(shop_: Shop) -> Iterator[None]:
    """Customers, in waves, until the block ends."""
    is_over = threading.Event()

    def trade() -> None:
        with psycopg.connect(shop_.url, autocommit=True) as conn:
            for round_ in range(10_000):
                if is_over.wait(0.25):
                    return
                wave = 6 + 10 * (round_ % 60 < 16)
                for number in range(wave):
                    shop.send_receipt.enqueue(invoice=round_ * 100 + number, conn=conn)
                if round_ % 2:
                    shop.charge.enqueue(invoice=round_, conn=conn)
                if round_ % 8 == 0:
                    shop.render_report.enqueue(month="2026-11", conn=conn)
                if round_ % 40 == 0:
                    shop.sync_stock.enqueue(warehouse="lisbon", conn=conn)

    trader = threading.Thread(target=trade, daemon=True)
    trader.start()
    try:
        yield
    finally:
        is_over.set()
        trader.join(BOUND_SECONDS)


class Camera:
    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    def open(self, *, scheme: str = "light", viewport: dict[str, int] = DESK) -> Page:
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
        page.wait_for_selector(".link-state[data-link=open]", state="attached")
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
    shop_: Shop, camera: Camera, job_id: str, silent: Witness, has_reports: bool
) -> None:
    light, dark = camera.open(), camera.open(scheme="dark")
    phone = camera.open(viewport=PHONE)
    time.sleep(WATCHED_SECONDS)
    camera.shoot(light, "overview")
    camera.shoot(dark, "overview-dark")
    camera.shoot(phone, "overview-phone")
    for page, suffix in ((light, ""), (dark, "-dark"), (phone, "-phone")):
        camera.shoot(page, f"timeline{suffix}", f"jobs/{job_id}")
    for page in (light, phone):
        camera.show(page, "leases")
    until(lambda: shop_.has(_HELD_BY_THE_SILENT), "a claim of the worker that is to fall silent")
    silent.stop()  # its leases begin to run out
    for page, name in ((light, "leases"), (phone, "leases-phone")):
        page.wait_for_selector(".badge[data-tone=warn], .badge[data-tone=bad]")
        camera.shoot(page, name)
    shop_.conn.execute("ANALYZE faultline.jobs")  # what has succeeded is estimated, never counted
    for route in ("workers", "queues", "rejections", "audit", "jobs?state=failed"):
        camera.shoot(light, route.partition("?")[0], route)
    if has_reports:
        camera.shoot(light, "reports", "reports", whole=True)
    else:
        print("no picture of the reports: there are none in the folder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--reports", type=Path, default=Path("reports/latest"), help="summaries to show"
    )
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        raise SystemExit("no Chromium on this machine")
    with embedded.temporary_server() as server, contextlib.ExitStack() as processes:
        migrate(server.url)
        shop_ = Shop(server.url, processes)
        url = shop_.inspector(arguments.reports.resolve())
        job_id = stage_takeover(shop_)
        shop_.conn.execute(
            "SELECT faultline.enqueue('newsletter.send', '{}', 'newsletter', 5, now() + interval '1 day')"
        )
        shop_.conn.execute("SELECT faultline.pause_queue('newsletter', 'waits for the lawyers')")
        silent = shop_.worker("reports", "--lease-seconds", "8", "--concurrency", "3")
        shop_.worker("reports,billing", "--lease-seconds", "10")
        shop_.worker("mail,billing", "--concurrency", "3")
        shop_.worker("mail,stock", "--concurrency", "2")
        with traffic(shop_), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            has_reports = any(arguments.reports.glob("*summary.json"))
            take_pictures(shop_, Camera(browser, url), job_id, silent, has_reports)
            browser.close()


if __name__ == "__main__":
    main()
