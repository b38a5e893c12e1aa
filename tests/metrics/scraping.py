"""What Prometheus would see: the endpoint of a process, fetched and read."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from faultline.metrics import CATALOGUE
from tests.waiting import wait_until

BOUND_SECONDS = 45.0
METRICS = {metric.name: metric for metric in CATALOGUE}


class Page:
    """One scrape: every sample by its name and labels."""

    def __init__(self, text: str) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.families: set[str] = set()
        for family in text_string_to_metric_families(text):
            self.families.add(family.name + ("_total" if family.type == "counter" else ""))
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def all(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of that name that have these labels, among others."""
        return {
            found: value
            for (sample, found), value in self.samples.items()
            if sample == name and labels.items() <= dict(found).items()
        }

    def total(self, name: str, **labels: str) -> float:
        return sum(self.all(name, **labels).values())

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(found)[label] for found in self.all(name)}

    def moved(self) -> set[str]:
        """The metrics of the catalogue of which something is above 0."""
        parts = {f"{name}{suffix}": name for name in METRICS for suffix in ("", "_count")}
        return {parts[name] for (name, _), value in self.samples.items() if name in parts and value}


def free_port() -> int:
    """A port that no other process is assigned as long as this process lives.

    It stays bound here and does not listen: a server that asks for this very port gets it (servers bind
    with SO_REUSEADDR), and a process that lets the kernel choose gets another. A port that was only looked
    up could be taken by the time its server has started.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    atexit.register(held.close)
    return int(held.getsockname()[1])


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def fetch(port: int, query: str = "", accept: str = "*/*") -> tuple[str, str]:
    """The content's type, and the content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", f"/metrics{query}", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.headers["Content-Type"], answer.read().decode()


def scrape(port: int) -> Page:
    return Page(fetch(port)[1])


def scrape_until(port: int, holds: Callable[[Page], Any], otherwise: str) -> Page:
    """The first scrape of which this is true."""
    page = Page("")

    def found() -> bool:
        nonlocal page
        with contextlib.suppress(OSError):  # not up yet
            page = scrape(port)
        return bool(holds(page))

    wait_until(found, lambda: f"{otherwise}: {sorted(page.samples.items())}")
    return page
