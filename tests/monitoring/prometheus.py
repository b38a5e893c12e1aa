"""A Prometheus for one test, with the configuration of monitoring/."""

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
from tests.monitoring.monitoring_files import MONITORING
from tests.monitoring.tools import find_program
from tests.waiting import wait_until

TIMEOUT_SECONDS = 40.0
POLL_SECONDS = 0.1
INTERVAL = "300ms"  # between scrapes, and between evaluations of the rules


class Prometheus:
    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self._port = port
        self._process = process
        self._log = log

    def get(self, path: str, **parameters: str | float) -> Any:
        """Return the `data` of the response; fail the test unless the request succeeded."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
            response = connection.getresponse()
            body = response.read().decode()
        assert response.status == 200, f"{parameters}: {body}"
        document = json.loads(body)
        assert document["status"] == "success", body
        assert not document.get("warnings"), body
        return document["data"]

    def query(self, expression: str) -> list[Any]:
        """Return the current series of an expression."""
        return list(self.get("/api/v1/query", query=expression)["result"])

    def query_range(self, expression: str) -> list[Any]:
        """Return the series of the last ten seconds, as a graph needs them."""
        now = time.time()
        parameters = {"query": expression, "start": now - 10, "end": now, "step": 1}
        return list(self.get("/api/v1/query_range", **parameters)["result"])

    def wait_for(self, expression: str) -> None:
        """Wait until the expression has a result."""
        self._wait(lambda: bool(self.query(expression)), expression)

    def evaluated_rules(self) -> list[Any]:
        """Return all rules after each was evaluated once."""

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

        self._wait(is_ready, "response")

    def _wait(self, condition: Any, what: str) -> None:
        def still_runs() -> None:
            assert self._process.poll() is None, self._log.read_text()

        wait_until(
            condition,
            lambda: f"{what}: {self._log.read_text()[-2000:]}",
            limit_seconds=TIMEOUT_SECONDS,
            check=still_runs,
        )


@contextlib.contextmanager
def scraping(targets: Mapping[str, Sequence[str]], home: Path) -> Iterator[Prometheus]:
    """Run a Prometheus; `targets` maps jobs of prometheus.yml to addresses."""
    config = home / "prometheus.yml"
    config.write_text(json.dumps(_configuration(targets)))  # JSON is valid YAML
    port = free_port()
    with (home / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                find_program("prometheus"),
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
        process.kill()  # its data is not needed
        process.wait(TIMEOUT_SECONDS)


def _configuration(targets: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    document = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    document["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    document["rule_files"] = [str(MONITORING / name) for name in document["rule_files"]]
    jobs = [job for job in document["scrape_configs"] if job["job_name"] in targets]
    assert len(jobs) == len(targets)
    for job in jobs:
        job["static_configs"] = [{"targets": list(targets[job["job_name"]])}]
    document["scrape_configs"] = jobs
    return dict(document)
