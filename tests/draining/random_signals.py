"""Sends signals to services at random times and checks how they end.

    python -m tests.draining.random_signals --rounds 200 --seed 1

Each round starts one service, waits a random time (in half of the rounds counted from the moment its
signal handlers are installed) and sends SIGTERM or SIGINT, in every third round twice. Before its
handlers are installed a process dies by the signal (exit code 130, 143, or 1 while the interpreter
starts); afterwards it exits with 0. Anything else fails the command.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from faultline import embedded
from faultline.postgres.migrate import migrate
from tests.waiting import block_thread, wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.processes.apps:app"
BOUND_SECONDS = 60.0
LONGEST_LIFE_SECONDS = 4.0
SERVICES = {
    "worker": ["worker"],
    "supervisor": ["worker", "--processes", "2"],
    "reconciler": ["reconciler"],
    "api": ["api", "--port", "0", "--insecure-no-keys"],
    "inspector": ["inspector", "serve", "--port", "0"],
}
WITHOUT_UVLOOP = "import sys\nsys.modules['uvloop'] = None\n"
INTERPRETER_STARTS = ("Failed to import the site module", "Could not import runpy module")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def wait_for_handlers(pid: int) -> None:
    def catches_sigterm() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    wait_until(catches_sigterm, "a handler for SIGTERM")


def one_round(url: str, folder: Path, chance: random.Random, number: int) -> tuple[str, int, str]:
    name, command = list(SERVICES.items())[number % len(SERVICES)]
    has_uvloop = number // len(SERVICES) % 2 == 0
    environment = {**os.environ, "DATABASE_URL": url}
    if not has_uvloop:
        path = [str(folder), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    process = subprocess.Popen(
        [sys.executable, "-m", "faultline", "--app", APP, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if number // 2 % 2:  # otherwise most signals would arrive during imports on a busy machine
        wait_for_handlers(process.pid)
    block_thread(chance.uniform(0, LONGEST_LIFE_SECONDS))
    for _ in range(2 if number % 3 == 0 else 1):
        process.send_signal(chance.choice(SIGNALS))
        block_thread(chance.uniform(0, 0.3) if chance.random() < 0.5 else 0)
    try:
        _, errors = process.communicate(timeout=BOUND_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return f"{name}, uvloop {has_uvloop}", 999, "it does not end"
    code = process.returncode
    return f"{name}, uvloop {has_uvloop}", 128 - code if code < 0 else code, errors


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # A shell makes background commands ignore SIGINT, and child processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(options.seed)
    codes: Counter[tuple[str, int]] = Counter()
    failures = 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(embedded.temporary_server())
        migrate(server.url)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sitecustomize.py").write_text(WITHOUT_UVLOOP)
        for number in range(options.rounds):
            name, code, errors = one_round(server.url, folder, chance, number)
            codes[name, code] += 1
            # Until the handlers are there Python shows the KeyboardInterrupt, and ends with 1 if it met
            # the interpreter's own start. Later it shows what a handler raised where nothing can catch it.
            is_young = any(start in errors for start in INTERPRETER_STARTS) and code == 1
            is_shown = code == 128 + signal.SIGINT or "SystemExit: 0" in errors
            if not is_young and (
                code not in (0, 130, 143) or ("Traceback" in errors and not is_shown)
            ):
                failures += 1
                print(f"round {number}: {name} ended with {code}:\n{errors}")
    for (name, code), times in sorted(codes.items()):
        print(f"{name:28} {code:4} {times:4} times")
    print(f"{options.rounds} rounds, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
