"""A page of docs/coming-from as a project: files, commands, effects of its jobs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.docs.blocks import Block, blocks_of
from tests.docs.shell import commands_of
from tests.running import value
from tests.waiting import LIMIT_SECONDS, alarms, wait_until

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "coming-from"
_OTHERS_SETTINGS = ("FAULTLINE_", "PYTEST", "COV", "CELERY_", "RQ_", "PGQUEUER_", "PROCRASTINATE_")
Connection = psycopg.Connection[Any]


class Migration:
    """Runs what a page says, as processes in a folder of its own.

    `run` and `running` take a command of the page and refuse one that the page does not have.
    """

    def __init__(self, page: str, folder: Path, conn: Connection, **environment: str) -> None:
        self.folder = folder
        self._conn = conn
        self._blocks = blocks_of(PAGES / page)
        self._commands = self._read_commands()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OTHERS_SETTINGS)}
        self.environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
            **environment,
        }
        written: set[str] = set()
        for block in self._blocks:
            if block.file_name and block.file_name not in written:
                written.add(block.file_name)
                self._write(block)
        for block in self._blocks:
            if block.language == "sql":
                conn.execute(block.text.encode())

    def rewrite(self, name: str) -> None:
        """Write the last version of a file that the page has twice."""
        first, *_, last = [block for block in self._blocks if block.file_name == name]
        assert first is not last
        self._write(last)

    def run(self, command: str, **environment: str) -> str:
        """Run one command of the page to its end; returns its output."""
        self._checked(command)
        return self.run_other(command, **environment)

    def command(self, program: str) -> str:
        """The one command of the page that runs this program."""
        [words] = [words for words in self._commands if words[0] == program]
        return shlex.join(words).replace("'$DATABASE_URL'", "$DATABASE_URL")

    def run_other(self, command: str, **environment: str) -> str:
        """Run a command that the page does not have."""
        done = subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        output = f"{done.stdout}{done.stderr}"
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{output}"
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Run a worker of the page until the block ends; then SIGTERM must end it with 0."""
        output = self.folder / f"output-{len(list(self.folder.glob('output-*')))}.txt"
        with output.open("w") as stream:
            process = subprocess.Popen(
                self._checked(command),
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

        def check() -> None:
            assert process.poll() is None, "the worker has ended"

        alarms.append(check)
        try:
            yield
            alarms.remove(check)
            process.terminate()
            code = process.wait(LIMIT_SECONDS)
        except BaseException as error:
            error.add_note(f"{command}:\n{output.read_text()}")
            raise
        finally:
            if check in alarms:
                alarms.remove(check)
            if process.poll() is None:
                process.kill()
                process.wait()
        assert code == 0, f"{command} ended with {code}:\n{output.read_text()}"

    def paid(self) -> dict[int, str]:
        """Each invoice and the queue that paid it; no invoice may be paid twice."""
        rows = self._conn.execute("SELECT invoice, queue FROM payments").fetchall()
        twice = [invoice for invoice, times in Counter(row[0] for row in rows).items() if times > 1]
        assert twice == []
        return dict(rows)

    def wait_until_paid(self, count: int) -> None:
        query = "SELECT count(*) FROM payments"
        wait_until(
            lambda: value(self._conn, query) >= count,
            lambda: f"{count} payments, not {self.paid()}",
        )

    def unfinished(self) -> int:
        """The jobs that wait or run in Faultline."""
        query = "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running')"
        return int(value(self._conn, query))

    def _write(self, block: Block) -> None:
        path = self.folder / block.file_name
        path.write_text(block.text)

    def _read_commands(self) -> list[list[str]]:
        texts = [block.text for block in self._blocks if not block.language and not block.file_name]
        return [shlex.split(command) for text in texts for command in commands_of(text)]

    def _checked(self, command: str) -> list[str]:
        words = shlex.split(command)
        assert words in self._commands, f"the page does not say: {command}"
        return words
