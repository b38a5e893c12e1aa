"""Does what PostgreSQL's image does for `postgres`: server, settings, scripts."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from faultline import embedded
from tests.conftest import administer, roomy_memory, url_of
from tests.containers.composition import Service

SCRIPTS = "/docker-entrypoint-initdb.d/"
BOUND_SECONDS = 60.0


def binaries_of(service: Service) -> Path:
    """The binaries of the image's major version, or else of any installed one."""
    major = int(service.spec["image"].partition(":")[2])
    return embedded.all_binaries().get(major) or embedded.find_binaries()


def settings_of(service: Service) -> dict[str, str]:
    program, *words = service.command
    assert program == "postgres"
    assert words[::2] == ["-c"] * (len(words) // 2)
    return dict(word.split("=", 1) for word in words[1::2])


@contextlib.contextmanager
def serving(service: Service) -> Iterator[embedded.Server]:
    """A server with the settings of its command and the database of its environment."""
    server = embedded.temporary_server(
        binaries=binaries_of(service), settings=settings_of(service), parent=roomy_memory()
    )
    with server as running:
        administer(running.url, "CREATE DATABASE {}", service.environment["POSTGRES_DB"])
        yield running


def run_scripts(service: Service, server: embedded.Server, secrets: Path) -> None:
    """Run the scripts in the order of their names, as the superuser."""
    superuser = urlsplit(server.url)
    environment = {
        "PATH": f"{binaries_of(service)}:/usr/bin:/bin",
        "POSTGRES_USER": service.environment["POSTGRES_USER"],
        "POSTGRES_DB": service.environment["POSTGRES_DB"],
        "PGHOST": str(superuser.hostname),  # in the image: a socket inside the container
        "PGPORT": str(superuser.port),
        "PGPASSWORD": str(superuser.password),
        "FAULTLINE_SECRETS_FOLDER": str(secrets),
    }
    scripts = [mount for mount in service.mounts if mount.target.startswith(SCRIPTS)]
    for script in sorted(scripts, key=lambda mount: mount.target):
        command = [str(script.path)]
        if script.target.endswith(".sql"):
            login = [
                "--username",
                environment["POSTGRES_USER"],
                "--dbname",
                environment["POSTGRES_DB"],
            ]
            command = ["psql", "-v", "ON_ERROR_STOP=1", "--no-psqlrc", *login, "-f", *command]
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BOUND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()


def superuser_url(service: Service, server: embedded.Server) -> str:
    return url_of(server.url, service.environment["POSTGRES_DB"])
