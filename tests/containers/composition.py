"""compose.yaml as an engine reads it: anchors merged, variables' defaults set."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yaml"
PROMETHEUS = ROOT / "monitoring" / "compose" / "prometheus.yml"
SECRETS = ROOT / "deploy" / "compose" / "development-secrets"
OUR_IMAGE = "faultline:local"

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@dataclass(frozen=True)
class Mount:
    source: str  # a path beside compose.yaml, or the name of a volume
    target: str

    @property
    def path(self) -> Path | None:
        return ROOT / self.source if self.source.startswith(".") else None


@dataclass(frozen=True)
class Service:
    name: str
    spec: dict[str, Any]

    @property
    def command(self) -> list[str]:
        return list(self.spec.get("command", []))

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.spec.get("environment", {}))

    @property
    def secrets(self) -> list[str]:
        return list(self.spec.get("secrets", []))

    @property
    def networks(self) -> set[str]:
        return set(self.spec["networks"])

    @property
    def mounts(self) -> list[Mount]:
        return [Mount(*volume.split(":")[:2]) for volume in self.spec.get("volumes", [])]

    @property
    def is_ours(self) -> bool:
        return bool(self.spec["image"] == OUR_IMAGE)

    @property
    def waits_for(self) -> dict[str, str]:
        """Whom, and until what is true of it."""
        return {name: how["condition"] for name, how in self.spec.get("depends_on", {}).items()}

    @property
    def runs_once(self) -> bool:
        return bool(self.spec["restart"] == "no")

    @property
    def health_check(self) -> list[str] | None:
        """The command; None where there is none."""
        test = self.spec["healthcheck"].get("test")
        if test is None:
            return None
        assert test[0] == "CMD", "through no shell"
        return list(test[1:])

    @property
    def grace_seconds(self) -> float:
        """How long the engine waits between SIGTERM and SIGKILL; ten seconds by default."""
        return float(str(self.spec.get("stop_grace_period", "10s")).removesuffix("s"))

    @property
    def published(self) -> list[str]:
        return list(self.spec.get("ports", []))

    @property
    def ports(self) -> set[int]:
        """On which it listens, as far as compose.yaml tells."""
        pairs = zip(self.command, self.command[1:], strict=False)
        listening = {int(word) for option, word in pairs if option in ("--port", "--metrics-port")}
        return listening | {int(published.rpartition(":")[2]) for published in self.published}


def document() -> dict[str, Any]:
    return dict(yaml.safe_load(_VARIABLE.sub(r"\2", COMPOSE.read_text())))


def services() -> dict[str, Service]:
    return {name: Service(name, spec) for name, spec in document()["services"].items()}


def scraped() -> dict[str, list[str]]:
    """The targets of each job of Prometheus."""
    jobs = yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]
    return {job["job_name"]: list(job["static_configs"][0]["targets"]) for job in jobs}
