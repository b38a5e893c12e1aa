"""A Prometheus of the test's own, with the shipped configuration: other targets, and less patience."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.metrics.scraping import free_port
from tests.monitoring.shipped import MONITORING
from tests.monitoring.tools import found

BOUND_SECONDS = 40.0
LOOK_SECONDS = 0.1
OFTEN = "300ms"  # to scrape, and to run the rules


class Prometheus:
    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self._port = port
        self._process = process
        self._log = log

    def get(self, path: str, **parameters: str | float) -> Any:
        """The `data` of its answer; anything but success is a failure of the test."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=BOUND_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
            answer = connection.getresponse()
            said = answer.read().decode()
        assert answer.status == 200, f"{parameters}: {said}"
        document = json.loads(said)
        assert document["status"] == "success", said
        assert not document.get("warnings"), said
        return document["data"]

    def query(self, expression: str) -> list[Any]:
        """The series of the answer, as they are now."""
        return list(self.get("/api/v1/query", query=expression)["result"])

    def query_range(self, expression: str) -> list[Any]:
        """The same over the last seconds, as a graph asks."""
        now = time.time()
        asked = {"query": expression, "start": now - 10, "end": now, "step": 1}
        return list(self.get("/api/v1/query_range", **asked)["result"])

    def wait_for(self, expression: str) -> None:
        """Until it has an answer."""
        self._wait(lambda: bool(self.query(expression)), expression)

    def evaluated_rules(self) -> list[Any]:
        """Every rule, once each has been run for the first time."""

        def rules() -> list[Any]:
            groups = self.get("/api/v1/rules")["groups"]
            return [rule for group in groups for rule in group["rules"]]

        self._wait(lambda: all(rule["health"] != "unknown" for rule in rules()), "all rules")
        return rules()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            try:
                self.get("/api/v1/status/runtimeinfo")
            except (ConnectionError, AssertionError):
                return False
            return True

        self._wait(is_ready, "an answer")

    def _wait(self, holds: Any, what: str) -> None:
        deadline = time.monotonic() + BOUND_SECONDS
        while not holds():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"no {what}: {self._log.read_text()[-2000:]}"
            time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def scraping(targets: Mapping[str, Sequence[str]], home: Path) -> Iterator[Prometheus]:
    """`targets` says where each job of the shipped configuration is; jobs that it leaves out are not
    scraped."""
    config = home / "prometheus.yml"
    config.write_text(json.dumps(_configuration(targets)))  # is YAML too
    port = free_port()
    with (home / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                found("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        prometheus = Prometheus(port, process, home / "prometheus.log")
        prometheus.wait_until_ready()
        yield prometheus
    finally:
        process.kill()  # there is nothing in it that anybody wants to keep
        process.wait(BOUND_SECONDS)


def _configuration(targets: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    shipped = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    shipped["global"] = {"scrape_interval": OFTEN, "evaluation_interval": OFTEN}
    shipped["rule_files"] = [str(MONITORING / name) for name in shipped["rule_files"]]
    jobs = [job for job in shipped["scrape_configs"] if job["job_name"] in targets]
    assert len(jobs) == len(targets)
    for job in jobs:
        job["static_configs"] = [{"targets": list(targets[job["job_name"]])}]
    shipped["scrape_configs"] = jobs
    return dict(shipped)
