"""The command line of every Python peer: roles, payloads and printed lines."""

import argparse
import asyncio
import inspect
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

Payload = dict[str, Any]
TASKS = ("noop", "write", "flaky", "stamp", "hold")

# The workload that is measured; some peers choose their settings by it.
WORKLOAD = os.environ.get("BENCH_WORKLOAD", "")
# For the writes of the handlers, independent of the concurrency: a default PostgreSQL has 100 connections.
# No handler writes while recovery is measured, and several pairs of workers run at once.
WRITE_CONNECTIONS = 1 if WORKLOAD == "recovery" else 20
_HOLD_SECONDS = 3600.0


@dataclass(frozen=True)
class Enqueue:
    """What the harness asked to be enqueued."""

    task: str
    jobs: int
    batch: int
    payload_bytes: int
    every: float
    seconds: float = float("inf")  # it stops after this time


def main(
    *,
    prepare: Callable[[str], Any],
    enqueue: Callable[[str, Enqueue], Any],
    work: Callable[[str, int], Any],
    finished: Callable[[str], Any] | None = None,
) -> None:
    """Run the role named on the command line; roles may be coroutine functions."""
    options = _parser().parse_args()
    url = os.environ["BENCH_URL"]
    if options.role == "prepare":
        _run(prepare, url)
    elif options.role == "enqueue":
        _run(
            enqueue,
            url,
            Enqueue(
                options.task,
                options.jobs,
                options.batch,
                options.payload,
                options.every,
                options.seconds,
            ),
        )
    elif options.role == "work":
        _run(work, url, options.concurrency)
    elif finished is None:
        raise SystemExit("the harness counts this peer's finished jobs with the SQL in peer.toml")
    else:
        _print_line(finished=_run(finished, url))


def payloads(enqueue: Enqueue, start: int = 0) -> Iterator[Payload]:
    """Yield the payloads from `start` on; `sent_ns` is set when a payload is taken."""
    filler = "x" * enqueue.payload_bytes
    for n in range(start, enqueue.jobs):
        payload: Payload = {"n": n, "filler": filler}
        if enqueue.task == "stamp":
            payload["sent_ns"] = time.monotonic_ns()
        yield payload


async def send(
    enqueue: Enqueue,
    one: Callable[[Payload], Awaitable[Any] | Any],
    many: Callable[[list[Payload]], Awaitable[Any] | Any],
) -> None:
    """Enqueue by `one` or `many`; report the jobs and the time of these calls."""
    asked = payloads(enqueue)
    stop_at = time.monotonic() + enqueue.seconds
    jobs, seconds = 0, 0.0
    while (not jobs or time.monotonic() < stop_at) and (
        batch := list(islice(asked, enqueue.batch))
    ):
        seconds += await _timed(one, batch[0]) if enqueue.batch == 1 else await _timed(many, batch)
        jobs += len(batch)
        if enqueue.every:
            await asyncio.sleep(enqueue.every)
    report(jobs, seconds)


def report(jobs: int, seconds: float) -> None:
    """Print what an `enqueue` took."""
    _print_line(jobs=jobs, seconds=seconds)


def note_start(payload: Payload) -> None:
    """Print the first start in this process and a stamp job's times; call it first."""
    global _started
    seen_ns = time.monotonic_ns()
    if not _started:
        _started = True
        _print_line(first_ns=seen_ns)
    if "sent_ns" in payload:
        _print_line(sent_ns=payload["sent_ns"], seen_ns=seen_ns)


async def hold(payload: Payload) -> None:
    """Print that this process holds the job, and keep it: the handler of hold jobs."""
    _print_line(held_ns=time.monotonic_ns(), n=payload["n"])
    await asyncio.sleep(_HOLD_SECONDS)


def is_flaky(payload: Payload) -> bool:
    """Whether a flaky job with this payload fails at its first attempt."""
    return bool(payload["n"] % 10 == 0)


_started = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(dest="role", required=True)
    roles.add_parser("prepare")
    enqueue = roles.add_parser("enqueue")
    enqueue.add_argument("--task", required=True, choices=TASKS)
    enqueue.add_argument("--jobs", required=True, type=int)
    enqueue.add_argument("--batch", default=1, type=int)
    enqueue.add_argument("--payload", default=0, type=int)
    enqueue.add_argument("--every", default=0.0, type=float)
    enqueue.add_argument("--seconds", default=float("inf"), type=float)
    roles.add_parser("work").add_argument("--concurrency", required=True, type=int)
    roles.add_parser("finished")
    return parser


def _run(role: Callable[..., Any], *arguments: Any) -> Any:
    answer = role(*arguments)
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


async def _timed(call: Callable[[Any], Any], argument: Any) -> float:
    started = time.perf_counter()
    answer = call(argument)
    if inspect.isawaitable(answer):
        await answer
    return time.perf_counter() - started


def _print_line(**fields: Any) -> None:
    # One unbuffered write per line: threads and processes may share this stdout, and the harness reads along.
    os.write(1, (json.dumps(fields) + "\n").encode())
