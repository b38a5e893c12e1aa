"""docs/deploying.md and compose.yaml agree on files, ports, probes and commands."""

from __future__ import annotations

import re

from faultline.cli.main import COMMANDS
from tests.containers.composition import ROOT, services

PAGE = ROOT / "docs" / "deploying.md"
TEXT = PAGE.read_text()


def test_every_link_and_named_file_exists() -> None:
    links = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", TEXT)
    assert {"kubernetes.md", "security.md", "alerts.md", "running.md"} <= set(links)
    for link in links:
        assert (PAGE.parent / link).exists(), link
    files = re.findall(r"`((?:deploy|examples|monitoring|tests|requirements)[\w./-]+)`", TEXT)
    assert len(files) > 8
    for name in files:
        assert (ROOT / name).exists(), name


def test_the_documented_health_checks_are_those_of_the_services() -> None:
    documented = set(re.findall(r"\| `(faultline health [^`]+)` \|", TEXT))
    checks = [service.health_check for service in services().values() if service.is_ours]
    assert documented == {" ".join(check) for check in checks if check}


def test_the_documented_ports_are_published() -> None:
    documented = set(map(int, re.findall(r"<http://localhost:(\d+)>", TEXT)))
    published = (p for service in services().values() for p in service.published)
    assert documented == {int(port.split(":")[1]) for port in published}


def test_the_documented_commands_and_variables_exist() -> None:
    commands = re.findall(r"docker compose run --rm operator (\w+)", TEXT)
    commands += re.findall(r"^faultline (?:--app \S+ )?(\w+)", TEXT, flags=re.MULTILINE)
    assert commands
    assert set(commands) <= set(COMMANDS)
    compose = (ROOT / "compose.yaml").read_text()
    for variable in set(re.findall(r"^(FAULTLINE_\w+)=", TEXT, flags=re.MULTILINE)):
        assert f"${{{variable}:-" in compose
