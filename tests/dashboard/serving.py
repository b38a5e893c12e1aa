"""An inspector as its users start it: a process of its own, that says where it listens."""

from __future__ import annotations

import re
import time
from pathlib import Path

from faultline.drills.witness import Witness

BOUND_SECONDS = 40.0
APP = "faultline.drills.race.app:app"  # serves none of its tasks


class Program:
    """`faultline …` that serves HTTP, from its first word to its end."""

    def __init__(self, database_url: str, command: str, *options: str) -> None:
        self._witness = Witness(
            command, app=APP, url=database_url, command=command, options=options
        )
        self.url = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline and self._witness.is_alive:
            said = "\n".join(self._witness.stray_lines)
            if found := re.search(r"http://[\d.]+:\d+", said):
                return found[0]
            time.sleep(0.01)
        words = self._witness.last_words()
        self._witness.end()
        raise AssertionError(f"it does not listen: {words}")

    def end(self) -> None:
        self._witness.end()


def start_inspector(
    database_url: str,
    *,
    port: str = "0",
    reports: Path | None = None,
    api_url: str | None = None,
    max_streams: int | None = None,
) -> Program:
    options = ["serve", "--port", port]
    if reports is not None:
        options += ["--reports", str(reports)]
    if api_url is not None:
        options += ["--api-url", api_url]
    if max_streams is not None:
        options += ["--max-streams", str(max_streams)]
    return Program(database_url, "inspector", *options)
