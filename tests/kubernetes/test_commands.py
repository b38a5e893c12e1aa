"""Manifests use commands, variables, ports and probes that Faultline has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import click
import pytest

from faultline.api.service_endpoints import router as api_probes
from faultline.cli.main import cli
from faultline.inspector.read_endpoints import router as inspector_reads
from faultline.postgres.url import FILE_VARIABLE
from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S, Object
from tests.kubernetes.reading import read

OPERATOR = "examples/operator.yaml"
# Read by libpq, which the driver is made of, and by OpenTelemetry's exporter.
LIBRARIES = {"PGSSLMODE", "PGSSLROOTCERT", "OTEL_EXPORTER_OTLP_ENDPOINT"}


def parsed(command_line: Sequence[str]) -> tuple[click.Command, click.Context]:
    """Parse a command line without running the command."""
    program, *arguments = command_line
    assert program == "faultline"
    command: click.Command = cli
    context = cli.make_context("faultline", list(arguments))
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert found is not None
        command = found
        context = command.make_context(str(name), list(rest), parent=context)
    return command, context


def all_workloads(source: str) -> list[Object]:
    if source == OPERATOR:
        return [read((K8S / OPERATOR).read_text())]
    return manifests.workloads(source)


def command_lines(workload: Object) -> Iterator[list[str]]:
    container = manifests.container(workload)
    yield [*container["command"], *container["args"]]
    for _, probe in manifests.probes(workload):
        if "exec" in probe:
            yield probe["exec"]["command"]


@pytest.mark.parametrize("source", [*manifests.ALL, OPERATOR])
def test_faultline_accepts_every_command_line(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for workload in all_workloads(source):
        for name, value in manifests.environment(workload).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(FILE_VARIABLE)  # of no file on this machine
        for command_line in command_lines(workload):
            parsed(command_line)
            seen += 1
    assert seen


def test_a_command_line_with_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(["faultline", "worker", "--drain=20"])
    with pytest.raises(click.UsageError):
        parsed(["faultline", "werker"])


def variables(command: click.Command) -> set[str]:
    """The environment variables that this command and its group read."""
    named: set[str] = set()
    for parameter in (*cli.params, *command.params):
        given = parameter.envvar
        named |= {given} if isinstance(given, str) else set(given or ())
    return named


@pytest.mark.parametrize("source", [*manifests.ALL, OPERATOR])
def test_every_variable_is_one_that_its_process_reads(source: str) -> None:
    ours = {FILE_VARIABLE, *LIBRARIES}
    handlers_own = {"PROVIDER"}  # values/everything.yaml
    for workload in all_workloads(source):
        name = manifests.component(workload)
        command, _ = parsed([*manifests.container(workload)["command"], *plain_arguments(workload)])
        known = ours | variables(command) | (handlers_own if name == "worker" else set())
        assert set(manifests.environment(workload)) <= known, name


def plain_arguments(workload: Object) -> list[str]:
    return list(manifests.container(workload)["args"])


# ── ports and probes ─────────────────────────────────────────────────────────────────────────────

PORT_OPTIONS = {
    "worker": "metrics-port",
    "reconciler": "metrics-port",
    "api": "port",
    "inspector": "port",
}
ADDRESS_OPTIONS = {
    "worker": "metrics-host",
    "reconciler": "metrics-host",
    "api": "host",
    "inspector": "host",
}


@pytest.mark.parametrize("source", manifests.ALL)
def test_every_port_is_one_that_its_process_serves_to_others(source: str) -> None:
    for workload in manifests.workloads(source):
        declared = [
            each["containerPort"] for each in manifests.container(workload).get("ports", [])
        ]
        part = manifests.component(workload)
        if part == "migrate":
            assert declared == []
            continue
        assert declared == [int(manifests.option(workload, PORT_OPTIONS[part]))]
        assert manifests.option(workload, ADDRESS_OPTIONS[part]) == "0.0.0.0"  # noqa: S104 - a pod's own


@pytest.mark.parametrize("source", manifests.ALL)
def test_every_probe_calls_a_path_that_exists(source: str) -> None:
    served = {
        "api": {getattr(route, "path", "") for route in api_probes.routes},
        "inspector": {getattr(route, "path", "") for route in inspector_reads.routes},
    }
    for workload in manifests.workloads(source):
        part = manifests.component(workload)
        ports = {each["name"] for each in manifests.container(workload).get("ports", [])}
        found = dict(manifests.probes(workload))
        assert set(found) == (
            set() if part == "migrate" else {"startupProbe", "livenessProbe", "readinessProbe"}
        )
        for probe in found.values():
            if "httpGet" in probe:
                assert probe["httpGet"]["port"] in ports
                assert urlsplit(probe["httpGet"]["path"]).path in served[part]
            elif "tcpSocket" in probe:
                assert probe["tcpSocket"]["port"] in ports
            else:
                assert probe["exec"]["command"][:3] == ["faultline", "health", part]
                url = [one for one in probe["exec"]["command"] if one.startswith("--url=")]
                assert not url or urlsplit(url[0][6:]).port == int(
                    manifests.option(workload, "port")
                )


@pytest.mark.parametrize("source", manifests.ALL)
def test_no_process_is_restarted_because_the_database_is_away(source: str) -> None:
    for workload in manifests.workloads(source):
        found = dict(manifests.probes(workload))
        for name in ("startupProbe", "livenessProbe"):
            probe = found.get(name, {})
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] == "/api/about"  # which asks the database nothing
            if "exec" in probe:
                assert "--live" in probe["exec"]["command"]


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_services_target_port_exists(source: str) -> None:
    pods = manifests.of_kind(source, "Deployment")
    for service in manifests.of_kind(source, "Service"):
        [behind] = [
            each
            for each in pods
            if service["spec"]["selector"].items()
            <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        ports = {each["name"] for each in manifests.container(behind)["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports


def test_the_inspector_finds_the_api_by_its_service() -> None:
    source = "chart:everything"
    [inspector] = [w for w in manifests.workloads(source) if manifests.component(w) == "inspector"]
    url = urlsplit(manifests.option(inspector, "api-url"))
    service = manifests.named(source, "Service", str(url.hostname))
    assert url.port in {each["port"] for each in service["spec"]["ports"]}
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "api"


def test_a_service_s_own_variables_would_be_read_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is why every pod sets enableServiceLinks to false."""
    monkeypatch.setenv("FAULTLINE_API_PORT", "tcp://10.0.0.1:80")
    with pytest.raises(click.BadParameter, match="is not a valid integer"):
        parsed(["faultline", "api"])
