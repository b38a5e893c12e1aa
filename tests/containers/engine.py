"""Runs the services of compose.yaml as processes, without a container engine.

Plain ones, of this environment's Faultline; or, given an image, ours inside of it, under its account and
with its read-only root. Commands, ports, variables, secrets, health checks and order are compose.yaml's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from faultline.embedded import Server
from tests.containers import database, recipe
from tests.containers.composition import Service, services
from tests.containers.image import Image
from tests.containers.local_services import LocalServices
from tests.waiting import wait_until

BOUND_SECONDS = 60.0
LOOK_SECONDS = 0.2  # a health check is a process of its own, and what it looks at is starting
# What their images start; ours says so in the Dockerfile.
ENTRYPOINTS = {"prometheus": ["prometheus"]}


class Engine:
    def __init__(self, home: Path, server: Server, image: Image | None = None) -> None:
        self.services = services()
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._completed: set[str] = set()
        self.local = LocalServices(home, self.services, urlsplit(server.url).port or 0)
        postgres = self.services["postgres"]
        database.run_scripts(postgres, server, self.local.folders(postgres)["/run/secrets"])

    def output(self, name: str) -> str:
        return self.local.log(name).read_text()

    def up(self, name: str) -> None:
        """Start it when what it waits for is true."""
        service = self.services[name]
        for other, condition in service.waits_for.items():
            if condition == "service_healthy":
                self.up(other)
                self.wait_until_healthy(other)
            else:
                assert condition == "service_completed_successfully"
                self._complete(other)
        if name != "postgres" and name not in self._processes:
            self._require_free_ports(service)
            self._processes[name] = self._start(service, [*_entrypoint(name), *service.command])

    def _complete(self, name: str) -> None:
        if name not in self._completed:
            self.up(name)
            assert self._processes[name].wait(BOUND_SECONDS) == 0, self.output(name)
            self._completed.add(name)

    def up_again(self, name: str) -> str:
        """What one that runs once does when the stack is brought up a second time."""
        del self._processes[name]
        self._completed.remove(name)
        self._complete(name)
        return self.output(name)

    def run(self, name: str, *words: str) -> str:
        """`docker compose run --rm NAME WORDS`: its output, if all went well."""
        assert self.services[name].command == []
        process = self._start(self.services[name], [*_entrypoint(name), *words])
        assert process.wait(BOUND_SECONDS) == 0, self.output(name)
        return self.output(name)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def health(self, name: str) -> int:
        """The exit code of its health check, run as compose.yaml has it."""
        service = self.services[name]
        assert service.health_check is not None
        if self._image is None or not service.is_ours:
            return self._start(service, service.health_check).wait(BOUND_SECONDS)
        if (process := self._processes.get(name)) is None:
            return 1  # an engine has no container then to run it in
        words = [self.local.reached(name, word) for word in service.health_check]
        command = self._image.joining(process.pid, words, service.environment)
        return self._popen(service, command).wait(BOUND_SECONDS)

    def wait_until_healthy(self, name: str) -> None:
        def still_runs() -> None:
            process = self._processes.get(name)
            assert process is None or process.poll() is None, self.output(name)

        wait_until(
            lambda: self.health(name) == 0,
            lambda: str(self.output(name)),
            limit_seconds=BOUND_SECONDS,
            check=still_runs,
        )

    def stop(self, name: str) -> int:
        """Send the image's stop signal, return the exit code; fail after the grace period."""
        process = self._processes.pop(name)
        process.send_signal(signal.Signals[recipe.image().the("STOPSIGNAL").rest])
        try:
            return process.wait(self.services[name].grace_seconds)
        finally:
            process.kill()

    def down(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(BOUND_SECONDS)

    # ── processes ────────────────────────────────────────────────────────────────────────────────

    def _start(self, service: Service, words: list[str]) -> subprocess.Popen[bytes]:
        if self._image is not None and service.is_ours:
            arguments = [self.local.reached(service.name, word) for word in words]
            mounts = self.local.folders(service)
            del mounts["/tmp"]  # which is in memory
            return self._popen(service, self._image.command(arguments, service.environment, mounts))
        environment = self._environment(service)
        program = shutil.which(words[0], path=environment["PATH"])
        assert program is not None, f"{words[0]} is not installed"
        arguments = [self.local.here(service, word) for word in words[1:]]
        folder = recipe.image().the("WORKDIR").rest if service.is_ours else "/"
        return self._popen(
            service, [program, *arguments], environment, self.local.here(service, folder)
        )

    def _environment(self, service: Service) -> dict[str, str]:
        """What the image and compose.yaml set; a container inherits nothing else."""
        image = recipe.image().environment if service.is_ours else {}
        given = {**image, **service.environment}
        environment = {name: self.local.here(service, text) for name, text in given.items()}
        binaries = database.binaries_of(self.services["postgres"])
        # The image was compiled when it was made; what is installed here may be compiled now.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PATH"] = f"{Path(sys.executable).parent}:{binaries}:/usr/bin:/bin"
        return environment

    def _popen(
        self,
        service: Service,
        command: list[str],
        environment: dict[str, str] | None = None,
        folder: str = "/",
    ) -> subprocess.Popen[bytes]:
        with self.local.log(service.name).open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _require_free_ports(self, service: Service) -> None:
        """A program of this machine that listens to all addresses would be in the way."""
        for port in service.ports:
            with contextlib.closing(socket.socket()) as probe:
                try:
                    probe.bind((self.local.addresses[service.name], port))
                except OSError as problem:
                    says = os.strerror(problem.errno or 0)
                    pytest.skip(f"{service.name} cannot have its port {port} here: {says}")


def _entrypoint(name: str) -> list[str]:
    return ENTRYPOINTS.get(name) or recipe.image().the("ENTRYPOINT").words
