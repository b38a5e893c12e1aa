"""Every command and query in docs/alerts.md and docs/running.md is valid."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import psycopg
import pytest

from faultline.cli.main import cli
from tests.monitoring.monitoring_files import ROOT, RUNBOOKS, anchor, headings

ALERTS = RUNBOOKS.read_text()
RUNNING = (RUNBOOKS.parent / "running.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", ALERTS, flags=re.DOTALL)
# In the text or in a block, up to the end of the code or to a comment.
COMMAND = re.compile(r"(?:`|^)(faultline [a-z-][^`\n#]*[^`\n# ])", flags=re.MULTILINE)
COMMANDS = sorted({*COMMAND.findall(ALERTS), *COMMAND.findall(RUNNING)})


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_in_the_runbooks_runs(conn: psycopg.Connection[Any], query: str) -> None:
    conn.execute(query.encode())  # may be several statements, as psql sends them


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_runbooks_is_valid(command: str) -> None:
    """The command and its options exist; JOB stands for a job id."""
    words = [
        "01a1de8e-68df-7076-9a2d-c2b6a3a0ec12" if word == "JOB" else word
        for word in shlex.split(command)[1:]
    ]
    current: click.Command = cli
    while isinstance(current, click.Group):
        context = click.Context(current)
        _, rest, _ = current.make_parser(context).parse_args(words)
        if not rest and current.invoke_without_command:
            return
        name, found, words = current.resolve_command(context, rest)
        assert found is not None
        current = found
    current.make_context(name, words)


def test_every_link_has_a_target() -> None:
    anchors = {anchor(heading) for heading in headings()}
    for target in re.findall(r"\]\(([^)]+)\)", ALERTS):
        page, _, place = target.partition("#")
        if page:
            assert (RUNBOOKS.parent / page).is_file(), target
        else:
            assert place in anchors, target
    for path in re.findall(r"`((?:rules|grafana|dashboards)/[^`*,]*)`", ALERTS):
        assert (ROOT / "monitoring" / path).exists(), path
