"""Replaces a node: runs a workload's container as a process and calls its probes.

With its command line, its variables, its ports, and nothing else of ours in its environment. Paths are other
ones, as they are inside of a pod, and so is its address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S, Object
from tests.loopback import own_address
from tests.waiting import wait_until

APPLICATION = K8S / "overlays" / "development"  # with jobs.py in it
BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.05


class Pod:
    def __init__(
        self,
        workload: Object,
        home: Path,
        secrets: Mapping[str, str],
        *,
        application: Path = APPLICATION,
    ) -> None:
        self.workload = workload
        self._application = application
        self.name = str(manifests.component(workload))
        self._container = manifests.container(workload)
        self._address = own_address()
        self._ports = {
            str(each["name"]): int(each["containerPort"])
            for each in self._container.get("ports", [])
        }
        self._folders: dict[str, Path] = {}
        spec = workload["spec"]["template"]["spec"]
        for mount in self._container["volumeMounts"]:
            folder = home / self.name / mount["name"]
            folder.mkdir(parents=True)
            self._folders[mount["mountPath"]] = folder
            [volume] = [each for each in spec["volumes"] if each["name"] == mount["name"]]
            for item in volume.get("secret", {}).get("items", []):
                (folder / item["path"]).write_text(f"{secrets[item['key']]}\n")
        self._log = home / self.name / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        return self._log.read_text()

    def url(self, port: str, path: str) -> str:
        """By the name of the port."""
        return f"http://{self._address}:{self._ports[port]}{path}"

    def start(self) -> None:
        self._process = self._run([*self._container["command"], *self._container["args"]])

    def complete(self) -> str:
        self.start()
        assert self._process is not None
        assert self._process.wait(BOUND_SECONDS) == 0, self.output
        return self.output

    def is_well(self, probe: str) -> bool:
        """Whether the probe of this name says yes, once."""
        asked = self._container[probe]
        if "exec" in asked:
            return self._run(asked["exec"]["command"]).wait(BOUND_SECONDS) == 0
        kind = "httpGet" if "httpGet" in asked else "tcpSocket"
        port = asked[kind]["port"]
        try:
            if kind == "tcpSocket":
                socket.create_connection((self._address, self._ports[port]), 5).close()
                return True
            url = self.url(port, asked[kind]["path"])
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a http one
                return 200 <= int(answer.status) < 400
        except OSError:
            return False

    def wait_until(self, probe: str, says: bool = True) -> None:
        def still_runs() -> None:
            assert self._process is not None
            assert self._process.poll() is None, self.output

        wait_until(
            lambda: self.is_well(probe) is says,
            lambda: f"{self.name} {probe}: {self.output}",
            limit_seconds=BOUND_SECONDS,
            check=still_runs,
        )

    def tell_to_go(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """The exit code after SIGTERM; fails if the process outlives its grace period."""
        assert self._process is not None
        hook = self._container.get("lifecycle", {}).get("preStop", {})
        pause = hook.get("sleep", {}).get("seconds", 0)
        grace = self.workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        return self._process.wait(grace - pause)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(BOUND_SECONDS)

    def _run(self, words: list[str]) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self._folders["/tmp"]),
            **{
                name: self._here(value)
                for name, value in manifests.environment(self.workload).items()
            },
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._here(word) for word in words],
                env=environment,
                cwd=self._application,
                stdout=log,
                stderr=log,
            )

    def _here(self, word: str) -> str:
        """The same on this machine: folders, and an address that only we can reach."""
        for path, folder in self._folders.items():
            if word.startswith(f"{path}/"):
                return f"{folder}{word.removeprefix(path)}"
        return word.replace("0.0.0.0", self._address).replace("127.0.0.1", self._address)  # noqa: S104


@contextlib.contextmanager
def running(pods: list[Pod]) -> Iterator[None]:
    """Started together, in no order, as Kubernetes does; none is left behind."""
    try:
        for each in pods:
            each.start()
        yield
    finally:
        for each in pods:
            each.kill()
