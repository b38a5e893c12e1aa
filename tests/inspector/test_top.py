"""`faultline top`: the queue at a glance."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from typing import Any

import psycopg
from rich.console import Console

from faultline.cli.top import unavailable
from faultline.errors import DatabaseUnavailable
from tests.cli.conftest import invoke
from tests.inspector import stories
from tests.inspector.conftest import BOUND_SECONDS
from tests.protocol import steps

Connection = psycopg.Connection[Any]


def glance(url: str) -> str:
    shown = invoke(url, "top", "--once")
    assert shown.code == 0, shown.out
    return shown.out


def test_an_empty_queue_has_a_frame(database_url: str) -> None:
    shown = glance(database_url)

    assert "stale risk low (0)" in shown
    assert "0 due · 0 waiting · 0 scheduled · 0 running · 0 failed" in shown
    assert "workers: none" in shown


def test_one_frame_shows_queues_leases_workers_and_refusals(
    database_url: str, conn: Connection
) -> None:
    story = stories.run_takeover(conn)
    stories.register(conn, "second")
    running = steps.claim_new(conn, worker="second")
    steps.enqueue(conn, queue="mail")

    shown = glance(database_url)

    assert "stale risk medium (25)" in shown
    assert "1 stale write was refused in the last 10 minutes" in shown
    assert "1 due · 0 waiting · 0 scheduled · 1 running · 0 failed" in shown
    assert "workers: 1 alive; 1 job running" in shown
    assert re.search(r"mail +1 +0 +0 +0", shown)
    assert re.search(rf"{running.job_id} +send_mail +second +1 .*low", shown)
    assert re.search(rf"ago +{story.job_id} +first +1 → 2 +token_mismatch", shown)


def test_names_cannot_write_on_the_terminal(database_url: str, conn: Connection) -> None:
    steps.claim_new(conn, worker="\x1b[31mred[bold]")

    shown = glance(database_url)

    assert "\x1b" not in shown
    assert r"\x1b[31mred[bold]" in shown


def test_without_a_terminal_the_error_says_what_to_do(database_url: str) -> None:
    refusal = invoke(database_url, "top").refused("invalid_settings")

    assert refusal.hint == "faultline top --once"


def test_an_outage_is_shown_above_the_last_frame() -> None:
    console = Console(record=True, width=80, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123

    console.print(unavailable("the last frame", DatabaseUnavailable("gone")))
    console.file.close()

    lines = console.export_text().splitlines()
    assert lines[0] == "database unavailable: gone"
    assert lines[-1] == "the last frame"


def test_on_a_terminal_it_refreshes_until_it_is_interrupted(
    database_url: str, conn: Connection
) -> None:
    """A real terminal: its frames, then Ctrl-C typed into it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "faultline", "--database-url", database_url, "top"]
    with subprocess.Popen(
        [*command, "--every", "0.2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
        start_new_session=True,
        preexec_fn=take_terminal,
    ) as process:
        os.close(theirs)
        try:
            seen = read_until(ours, "0 due")
            steps.enqueue(conn)
            seen = read_until(ours, "1 due")
            os.write(ours, b"\x03")
            read_to_the_end(ours)  # what it still has to say would otherwise be waited for
            code = process.wait(BOUND_SECONDS)
        finally:
            process.kill()
    os.close(ours)

    assert "stale risk" in seen
    assert code == 0


def take_terminal() -> None:
    """Make it the process's own, so that what is typed into it reaches the process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def read_until(terminal: int, words: str) -> str:
    seen = ""
    while words not in plain(seen):
        chunk = read(terminal)
        assert chunk, f"it never printed {words!r}: {seen}"
        seen += chunk
    return plain(seen)


def read_to_the_end(terminal: int) -> None:
    while read(terminal):
        pass


def read(terminal: int) -> str:
    """What it says next; nothing: it has ended."""
    assert select.select([terminal], [], [], BOUND_SECONDS)[0], "it says nothing any more"
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:
        return ""


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
