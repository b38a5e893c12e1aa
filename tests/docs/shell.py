"""A shell in an empty folder that runs the blocks of one page in order."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.docs.blocks import OUTPUT, UNTIL_STOPPED, Block, missing_lines
from tests.waiting import wait_until

BLOCK_SECONDS = 300.0  # the machine may be busy


class BlockFailed(AssertionError):
    """A block of a page does not work as written."""


class PageShell:
    """One bash process, so that a block sees the variables of those before it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._scratch = folder.with_name(f"{folder.name}-blocks")
        self._scratch.mkdir()
        self._environment = dict(environment)
        self._last_output = ""
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],  # noqa: S607 - the PATH is the user's
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read_answers, daemon=True).start()
        self._send("set -E; failed=; trap 'failed=\"$failed [$BASH_COMMAND] ended with $?.\"' ERR")

    def close(self) -> None:
        """End the shell and its background jobs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def run(self, block: Block) -> None:
        """Run a block in the way that its comment says."""
        if block.not_run:
            return
        if block.comment == OUTPUT:
            if missing := missing_lines(block.text, self._last_output):
                raise BlockFailed(f"line {block.line}: not printed: {missing}\n{self._last_output}")
        elif block.file_name:
            path = self.folder / block.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.comment == UNTIL_STOPPED:
            for number, command in enumerate(commands_of(block.text)):
                self._run_until_stopped(command, f"{block.line}-{number}")
        else:
            self.run_commands(block.replacement or block.text, block.line)

    def run_commands(self, text: str, line: int = 0) -> None:
        script, output = self._scratch / f"{line}.sh", self._scratch / f"{line}.out"
        script.write_text(text)
        self._send(f". {shlex.quote(str(script))} > {shlex.quote(str(output))} 2>&1")
        self._send('echo "done:$failed"; failed=')
        try:
            failed = self._answers.get(timeout=BLOCK_SECONDS).removeprefix("done:").strip()
        except queue.Empty:
            failed = f"no end after {BLOCK_SECONDS:g} s"
        self._last_output = output.read_text()
        if failed:
            raise BlockFailed(f"line {line}: {failed}\n{self._last_output}")

    def _run_until_stopped(self, command: str, name: str) -> None:
        """Start a service, wait until it says something, and stop it."""
        output = self._scratch / f"{name}.out"
        output.touch()
        self.run_commands(f"{command} > {shlex.quote(str(output))} 2>&1 &\nservice=$!")
        wait_until(
            lambda: output.read_text() != "", f"output of {command}", limit_seconds=BLOCK_SECONDS
        )
        try:
            self.run_commands("kill -TERM $service && wait $service")
        except BlockFailed as failure:
            raise BlockFailed(f"{command}: {failure}\n{output.read_text()}") from None

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed
            for line in self._process.stdout:
                self._answers.put(line)


def commands_of(text: str) -> list[str]:
    """The commands of a block, one for each line, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [shlex.join(command) for command in words if command]
