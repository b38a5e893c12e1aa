"""A worker stalls while it ships an order: how often is the stock reduced?

python run.py [--naive]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from faultline.testing import temporary_database

HERE = Path(__file__).parent
LIMIT_SECONDS = 60
JOBS = "/admin/faultline/storedjob/"

One = Callable[[str], Any]


def until(condition: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.1)


@contextlib.contextmanager
def worker(name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker, and end it; its log is shown if something goes wrong."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the example
    running = subprocess.Popen(
        [sys.executable, "manage.py", "faultline_worker", "--lease-seconds", "4", *options],
        cwd=HERE,
        env=os.environ | {"WORKER": name},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield running
    except SystemExit:
        log.seek(0)
        print(log.read().decode(), file=sys.stderr)
        raise
    finally:
        running.send_signal(signal.SIGCONT)
        running.terminate()
        running.wait(LIMIT_SECONDS)


def save(client: Any, page: str, **fields: object) -> None:
    """Save a form of the admin; it answers with a redirect if it is complete."""
    assert client.post(f"/admin/shop/{page}/", fields).status_code == 302, page


def race(client: Any, one: One, mug: int) -> tuple[int, int]:
    """Returns the stock of mugs, and the number of refused commits."""
    stock = f"select stock from shop_product where id = {mug}"
    save(client, "order/add", product=mug, quantity=3)
    print("admin     an order of 3 mugs and its job are stored in one transaction")
    labels = Path(os.environ["LABELS"])
    # A writes late although it could know better: so PostgreSQL alone decides.
    with worker("A", "--no-self-fencing") as a:
        until(lambda: list(labels.glob("*-A")), "a label of A")
        a.send_signal(signal.SIGSTOP)
        print("worker A  claims the job, token 1, prints a label, and stalls")
        with worker("B"):
            until(lambda: one(stock) == 7, "a shipment by B")
            print("worker B  takes over, token 2, and ships: 7 mugs are left")
            a.send_signal(signal.SIGCONT)
            print("worker A  resumes, and ships")
            refused = "select count(*) from faultline.rejections"
            until(lambda: one(stock) != 7 or one(refused), "the end of A's attempt")
            return one(stock), one(refused)


def operate(client: Any, one: One, poster: int) -> bool:
    """Retry a failed job in the admin, after a schedule has filled up the stock."""
    save(client, "order/add", product=poster, quantity=2)
    failed = "select count(*) from faultline.jobs where state = 'failed'"
    with worker("C"):
        until(lambda: one(failed) == 1, "a failed job")
        page = client.get(f"{JOBS}?state=failed&task=shop.ship").content.decode()
        [job] = re.findall(r'name="_selected_action" value="([^"]+)"', page)
        print("\nworker C  no posters in stock: the job fails for good")
        save(client, f"product/{poster}/change", name="poster", stock=0, minimum=20)
        until(lambda: one("select count(*) from shop_delivery") == 1, "a delivery")
        print("schedule  a minimum of 20 posters is set: the stock is filled up, once")
        client.post(JOBS, {"action": "retry_jobs", "index": 0, "_selected_action": job})
        shipped = "select count(*) from shop_shipment s join shop_order o on o.id = s.order_id"
        until(lambda: one(f"{shipped} where product_id = {poster}"), "a shipment of posters")
        print("admin     the job is retried by the staff: 2 posters are shipped")
        actor = "select actor from faultline.audit_log where action = 'retry' and result = 'done'"
        return one(actor) == "ada"


def run(url: str) -> tuple[int, int, bool]:
    import django
    from django.core.management import call_command

    django.setup()
    from django.contrib.auth.models import User
    from django.db import connections
    from django.test import Client
    from shop.models import Product

    from faultline.adapters.django import app

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    mug = Product.objects.create(name="mug", stock=10)
    poster = Product.objects.create(name="poster", stock=0)
    with psycopg.connect(url, autocommit=True) as conn:

        def one(query: str) -> Any:
            row = conn.execute(query).fetchone()
            return None if row is None else row[0]

        stock, refused = race(client, one, mug.pk)
        operated = operate(client, one, poster.pk)
    app.close()
    connections.close_all()
    return stock, refused, operated


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--naive", action="store_true", help="change the stock in a plain block")
    naive = parser.parse_args().naive
    os.environ.pop("NAIVE", None)
    if naive:
        os.environ["NAIVE"] = "1"
    with temporary_database() as url, tempfile.TemporaryDirectory() as labels:
        os.environ |= {
            "DATABASE_URL": url,
            "LABELS": labels,
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        stock, refused, operated = run(url)
    print(f"\n10 mugs, 3 sold, {stock} left; late writers refused by PostgreSQL: {refused}")
    if naive:
        as_said = stock == 4 and operated
        print("This is the control: 3 mugs are missing." if as_said else "WRONG")
        return 0 if as_said else 1
    holds = (stock, refused) == (7, 1) and operated
    print("The stock is right." if holds else "WRONG")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
