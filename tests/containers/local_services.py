"""Where the services of compose.yaml are on one machine without containers.

This is the one place where what it says is changed. Each service has an address of its own, so all of them
keep their ports; names of services become those addresses, and folders of a container folders here.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import yaml

from tests.containers.composition import SECRETS, Service

DATABASE_PORT = "5432"
OFTEN = "1s"  # for Prometheus to ask, instead of every 15


class LocalServices:
    def __init__(self, home: Path, services: dict[str, Service], database_port: int) -> None:
        self._home = home
        self._database_port = str(database_port)
        subnet = f"127.{random.randint(16, 254)}.{random.randint(0, 254)}"
        self.addresses = {name: f"{subnet}.{n}" for n, name in enumerate(services, start=2)}
        # Our server listens to this one, and takes a free port: the only one that is not kept.
        self.addresses["postgres"] = "127.0.0.1"
        for service in services.values():
            self._lay_out(service)

    def reached(self, name: str, text: str) -> str:
        """`text` with the addresses by which that service reaches itself and others here."""
        own = self.addresses[name]
        text = text.replace("0.0.0.0", own).replace("127.0.0.1", own)  # noqa: S104 - read, not bound
        for other, address in self.addresses.items():
            text = re.sub(rf"(?<![\w.-]){other}(?=:\d)", address, text)
        text = text.replace(f"127.0.0.1:{DATABASE_PORT}", f"127.0.0.1:{self._database_port}")
        return self._database_port if (name, text) == ("postgres", DATABASE_PORT) else text

    def here(self, service: Service, text: str) -> str:
        """The same, with the folders of this machine too."""
        folders = self.folders(service)
        inside = "|".join(sorted(folders, key=len, reverse=True))
        return re.sub(
            rf"(?<![\w/.-])({inside})(?=/|$)",
            lambda found: str(folders[found[1]]),
            self.reached(service.name, text),
        )

    def folders(self, service: Service) -> dict[str, Path]:
        """Where the folders of its container are."""
        own = self._home / service.name
        folders = {inside: own / inside.strip("/") for inside in ("/run/secrets", "/tmp", "/app")}
        for mount in service.mounts:
            folders[mount.target] = mount.path or own / mount.target.strip("/")
        # Its configuration names other services, so a changed copy is used.
        if service.name == "prometheus":
            folders = {"/prometheus": own / "data", "/etc/prometheus": own / "etc"}
        return folders

    def log(self, name: str) -> Path:
        return self._home / f"{name}.log"

    def _lay_out(self, service: Service) -> None:
        folders = self.folders(service)
        for folder in folders.values():
            if not folder.exists():
                folder.mkdir(parents=True)
        for secret in service.secrets:  # and none that it is not given
            text = (SECRETS / secret).read_text()
            (folders["/run/secrets"] / secret).write_text(self.reached(service.name, text))
        if service.name == "prometheus":
            for mount in service.mounts:
                if mount.path is not None:
                    self._lay_out_for_prometheus(service, mount.path, Path(mount.target))

    def _lay_out_for_prometheus(self, service: Service, source: Path, target: Path) -> None:
        to = self.folders(service)["/etc/prometheus"] / target.name
        if source.is_dir():
            to.symlink_to(source)
            return
        configuration = yaml.safe_load(self.reached(service.name, source.read_text()))
        configuration["global"] = {"scrape_interval": OFTEN, "evaluation_interval": OFTEN}
        to.write_text(yaml.safe_dump(configuration))
