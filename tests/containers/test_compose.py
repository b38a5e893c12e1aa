"""compose.yaml: its services, their accounts and secrets, and the names they use."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.api import ApiSettings
from faultline.config import Retention, WorkerSettings
from faultline.metrics.endpoint import TOKEN_VARIABLE, read_token
from tests.containers.composition import (
    COMPOSE,
    OUR_IMAGE,
    ROOT,
    SECRETS,
    document,
    scraped,
    services,
)
from tests.kubernetes.test_grace_periods import after_the_drain_seconds

SERVICES = services()
LOUD = "development-only-"
_HOSTS = re.compile(r"(?:://|@|^)([a-z][a-z0-9-]*):\d+")


def test_docker_compose_reads_it_as_we_do() -> None:
    if (program := shutil.which("docker-compose")) is None:
        pytest.skip("docker-compose is not installed (Debian: apt-get install docker-compose)")
    ran = subprocess.run(
        [program, "--file", str(COMPOSE), "--profile", "tools", "config"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/"},
    )
    assert ran.returncode == 0, ran.stderr
    read = yaml.safe_load(ran.stdout)["services"]
    assert set(read) == set(SERVICES)
    for name, service in SERVICES.items():
        assert list(read[name].get("command", [])) == service.command
        assert dict(read[name].get("environment", {})) == service.environment
        assert [secret["source"] for secret in read[name].get("secrets", [])] == service.secrets
        check = ["CMD", *service.health_check] if service.health_check else ["NONE"]
        assert read[name]["healthcheck"]["test"] == check
        conditions = {
            who: how["condition"] for who, how in read[name].get("depends_on", {}).items()
        }
        assert conditions == service.waits_for


def test_compose_has_exactly_these_services() -> None:
    assert set(SERVICES) == {
        *("postgres", "migrate", "api", "worker-1", "worker-2", "reconciler", "inspector"),
        *("operator", "prometheus", "grafana"),
    }
    assert [name for name in SERVICES if SERVICES[name].spec.get("profiles")] == ["operator"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_write_to_its_volumes_and_memory_alone_and_gain_no_right(name: str) -> None:
    spec = SERVICES[name].spec
    assert spec["read_only"] is True
    assert spec["cap_drop"] == ["ALL"]
    assert "cap_add" not in spec
    assert spec["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp:") for mount in spec["tmpfs"])
    assert spec["logging"]["options"]["max-size"]
    for volume in spec.get("volumes", []):
        assert volume.endswith(":ro") or volume.split(":")[0] in document()["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_restart_policy_and_a_health_check_or_runs_once(name: str) -> None:
    service = SERVICES[name]
    if service.runs_once:
        assert service.spec["healthcheck"] == {"disable": True}
    else:
        assert service.spec["restart"] == "unless-stopped"
        assert service.health_check


def test_ports_are_published_on_the_loopback_address_only() -> None:
    published = {name: service.published for name, service in SERVICES.items() if service.published}
    assert published == {
        "api": ["127.0.0.1:8000:8000"],
        "inspector": ["127.0.0.1:8001:8001"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_a_service_shares_a_network_with_each_service_it_names() -> None:
    named = 0
    for name, service in SERVICES.items():
        texts = [*service.command, *service.environment.values(), *_read_by(name)]
        if name == "prometheus":
            texts += [target for targets in scraped().values() for target in targets]
        for other in {host for text in texts for host in _HOSTS.findall(text)}:
            assert service.networks & SERVICES[other].networks, f"{name} cannot reach {other}"
            named += 1
    # To PostgreSQL six of ours and its own scripts; to the API one; Prometheus four; Grafana one.
    assert named >= 13
    assert not SERVICES["postgres"].networks & SERVICES["prometheus"].networks


def _read_by(name: str) -> list[str]:
    """The text of its secrets and of the files that are mounted into it."""
    texts = [(SECRETS / secret).read_text() for secret in SERVICES[name].secrets]
    if name == "grafana":
        (source,) = _datasources()
        texts.append(str(source["url"]))
    return texts


def test_prometheus_scrapes_every_service_with_metrics() -> None:
    counting = set()
    for name, service in SERVICES.items():
        options = dict(zip(service.command, service.command[1:], strict=False))
        if port := options.get("--metrics-port"):
            assert options["--metrics-host"] == "0.0.0.0"  # noqa: S104 - of its container
            counting.add(f"{name}:{port}")
        if "--open-metrics" in service.command:
            counting.add(f"{name}:{options['--port']}")
    assert {target for targets in scraped().values() for target in targets} == counting


def test_the_jobs_and_rules_of_prometheus_are_those_of_the_configuration_for_one_machine() -> None:
    """The alerts and dashboards were tried with that one."""
    here = yaml.safe_load((ROOT / "monitoring" / "prometheus.yml").read_text())
    there = yaml.safe_load((ROOT / "monitoring" / "compose" / "prometheus.yml").read_text())
    for part in (here, there):
        for job in part["scrape_configs"]:
            del job["static_configs"]
    assert here == there
    for name in there["rule_files"]:
        assert (ROOT / "monitoring" / name).exists()
    targets = {mount.target for mount in SERVICES["prometheus"].mounts}
    assert {"/etc/prometheus/prometheus.yml", "/etc/prometheus/rules"} <= targets


def test_every_mounted_path_exists() -> None:
    for service in SERVICES.values():
        for mount in service.mounts:
            assert mount.path is None or mount.path.exists()
    scripts = [mount.path for mount in SERVICES["postgres"].mounts if mount.target.endswith(".sh")]
    assert scripts
    for script in scripts:  # else it would be read into the image's own shell
        assert script is not None
        assert script.stat().st_mode & stat.S_IXOTH


def test_one_service_builds_the_image_and_all_others_wait_for_it() -> None:
    assert [name for name in SERVICES if "build" in SERVICES[name].spec] == ["migrate"]
    for name, service in SERVICES.items():
        if service.is_ours and name != "migrate":
            assert service.waits_for == {"migrate": "service_completed_successfully"}
    assert SERVICES["migrate"].waits_for == {"postgres": "service_healthy"}


def test_images_are_named_plainly_and_by_version() -> None:
    for service in SERVICES.values():
        image = service.spec["image"]
        if image != OUR_IMAGE:
            assert re.fullmatch(r"(?:[a-z]+/)?[a-z]+:v?\d+(?:\.\d+\.\d+)?", image)


def test_a_service_is_given_the_time_that_it_may_take_to_stop() -> None:
    needed = WorkerSettings().drain_seconds + after_the_drain_seconds()
    for name in ("worker-1", "worker-2"):
        assert "--drain-seconds" not in SERVICES[name].command
        assert needed <= SERVICES[name].grace_seconds <= needed + 10
    assert SERVICES["api"].grace_seconds > ApiSettings().drain_seconds


def test_the_audit_logs_retention_and_the_metrics_token_can_be_set() -> None:
    for name in ("worker-1", "worker-2", "reconciler"):
        given = SERVICES[name].environment
        assert given["FAULTLINE_KEEP_AUDIT_DAYS"] == f"{Retention().audit_days:g}"
        assert read_token(None, given) is None  # empty: none is needed
        assert read_token(None, {**given, TOKEN_VARIABLE: "t" * 32}) == "t" * 32
    for variable in ("FAULTLINE_KEEP_AUDIT_DAYS", TOKEN_VARIABLE):
        assert f"${{{variable}:-" in COMPOSE.read_text()


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────


def test_compose_has_no_password_and_its_secrets_are_marked_as_examples() -> None:
    assert LOUD not in COMPOSE.read_text().replace("development-secrets", "")
    for text in (path.read_text().strip() for path in SECRETS.iterdir()):
        _, _, password = text.removeprefix("postgresql://").partition("@")[0].rpartition(":")
        assert password.startswith(LOUD)


def test_each_process_has_an_account_of_its_own_and_no_secret_of_another() -> None:
    accounts = {}
    for name, service in SERVICES.items():
        if service.is_ours:
            (secret,) = service.secrets
            assert service.environment["DATABASE_URL_FILE"] == f"/run/secrets/{secret}"
            accounts[name] = secret
    assert accounts.pop("worker-1") == accounts.pop("worker-2") == "worker_url"
    assert len(set(accounts.values())) == len(accounts) == 5
    assert set(SERVICES["postgres"].secrets) == {
        *accounts.values(),
        "worker_url",
        "postgres_password",
    }
    assert SERVICES["prometheus"].secrets == []
    used = {secret for service in SERVICES.values() for secret in service.secrets}
    assert used == set(document()["secrets"]) == {path.name for path in SECRETS.iterdir()}


def test_new_secrets_have_the_same_names_and_differ_from_the_published_ones(
    tmp_path: Path,
) -> None:
    program = str(ROOT / "deploy" / "compose" / "new-secrets.sh")
    folder = tmp_path / "secrets"
    ran = subprocess.run([program, str(folder)], capture_output=True, timeout=100, check=True)
    assert ran.stdout.decode() == f"FAULTLINE_SECRETS={folder}\n"
    assert {path.name for path in folder.iterdir()} == {path.name for path in SECRETS.iterdir()}
    secrets = [path.read_text().strip() for path in folder.iterdir()]
    passwords = {re.sub(r"@.*", "", secret).rpartition(":")[2] for secret in secrets}
    assert len(passwords) == len(secrets)
    assert all(re.fullmatch(r"[0-9a-f]{48}", password) for password in passwords)
    for path in folder.iterdir():  # the same but for the password
        known = (SECRETS / path.name).read_text().strip()
        assert re.sub(r"[0-9a-f]{48}", "*", path.read_text().strip()) == re.sub(
            rf"{LOUD}[a-z]+", "*", known
        )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}

    again = subprocess.run([program, str(folder)], capture_output=True, timeout=100, check=False)
    assert again.returncode != 0
    assert [path.read_text().strip() for path in folder.iterdir()] == secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://worker@postgres:5432/faultline",
        "postgresql://worker:@postgres:5432/faultline",
        "postgresql://worker:with%20space@postgres:5432/faultline",
        "postgresql://worker:one:two@postgres:5432/faultline",
        "",
    ],
)
def test_a_url_that_accounts_cannot_be_made_from_is_refused_before_anything_is_made(
    tmp_path: Path, url: str
) -> None:
    shutil.copytree(SECRETS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "worker_url").write_text(url)
    refused = subprocess.run(
        [str(ROOT / "deploy" / "compose" / "accounts.sh")],
        env={"PATH": "/usr/bin:/bin", "FAULTLINE_SECRETS_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("accounts.sh: worker_url is not postgresql://NAME:PASSWORD@")


# ── Grafana, which is not here to be run ─────────────────────────────────────────────────────────


def _datasources() -> list[dict[str, Any]]:
    (folder,) = _mounted_at("/etc/grafana/provisioning/datasources")
    (path,) = folder.iterdir()
    return list(yaml.safe_load(path.read_text())["datasources"])


def _mounted_at(target: str) -> list[Path]:
    return [m.path for m in SERVICES["grafana"].mounts if m.target == target and m.path is not None]


def test_grafanas_data_source_is_the_prometheus_service() -> None:
    (source,) = _datasources()
    options = [word for word in SERVICES["prometheus"].command if "listen-address" in word]
    assert options == ["--web.listen-address=0.0.0.0:9090"]
    assert source["url"] == "http://prometheus:9090"
    shipped = ROOT / "monitoring" / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    (other,) = yaml.safe_load(shipped.read_text())["datasources"]
    assert {**source, "url": None} == {**other, "url": None}


def test_grafana_finds_the_dashboards_where_its_provider_looks() -> None:
    (folder,) = _mounted_at("/etc/grafana/provisioning/dashboards")
    (path,) = folder.iterdir()
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    (dashboards,) = _mounted_at(provider["options"]["path"])
    found = [json.loads(path.read_text()) for path in dashboards.glob("*.json")]
    assert len(found) == 5
    (source,) = _datasources()
    for dashboard in found:
        chosen = [v for v in dashboard["templating"]["list"] if v["name"] == "datasource"]
        assert [variable["query"] for variable in chosen] == [source["type"]]
