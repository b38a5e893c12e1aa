"""Starts `python -m faultline …` by forking a process that has imported Faultline.

Importing takes most of the CPU time of a short-lived process, and the suite starts more than a thousand of
them. Where a test is not about how a process starts, the fixture `preforked` lets `subprocess.Popen` ask a
template process for a fork. The new process is a real one: a child of the test's process with an
environment, a working directory, standard streams, a session and a process id of its own. Only `exec` and
the imports are left out. Any command that is not `python -m faultline`, and any option or environment that
a fork cannot honour (preexec_fn, LD_PRELOAD, …), is executed as usual, and so is all of it on a system
other than Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ANSWER_SECONDS = 60.0
MESSAGE_BYTES = 1 << 20
PROGRAM = [sys.executable, "-m", "faultline"]
IMPORTED_AHEAD = (
    *(
        "faultline.cli.main",
        "faultline.cli.worker",
        "faultline.cli.reconciler",
        "faultline.cli.api",
        "faultline.cli.inspector",
    ),
    *("faultline.api.application", "faultline.inspector.application", "faultline.serving.server"),
    *(
        "faultline.cli.migrate",
        "faultline.cli.db",
        "faultline.cli.epoch",
        "faultline.cli.drain",
        "faultline.cli.jobs",
    ),
    *("prometheus_client", "uvloop"),
)
# Variables that are read when a program is loaded, or an interpreter is started.
READ_AT_START = ("PYTHON", "LD_", "FAKETIME", "MALLOC_", "GLIBC_", "OTEL_")

# From linux/prctl.h and linux/sched.h.
PR_GET_TID_ADDRESS = 40
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
SYS_CLONE = {"x86_64": 56}
SIGCHLD = 17


class Template:
    """The process that is forked, seen from the process that wants forks of it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_able = False
        self._environment = dict(os.environ)  # before any test has changed it
        self._lock = threading.Lock()  # an answer belongs to the thread that asked

    def _start_template(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preforked", str(theirs.fileno())],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        trial = int(self._answer())
        if trial > 0:
            with contextlib.suppress(ChildProcessError):  # not a child of ours: no use to any test
                os.waitpid(trial, 0)
                self._is_able = True

    def close(self) -> None:
        if self._process is not None:
            self._socket.close()
            self._process.wait(ANSWER_SECONDS)

    def can_start(self, options: dict[str, Any]) -> bool:
        """Whether a fork can do what is asked for; starts the template when first needed."""
        command = options["args"]
        is_ours = isinstance(command, list) and list(map(str, command[:3])) == PROGRAM
        if not is_ours or not sys.platform.startswith("linux"):
            return False
        with self._lock:
            if self._process is None:
                self._start_template()
        unusual = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
        given = dict(os.environ if options["env"] is None else options["env"])
        names = {n for n in given.keys() | self._environment.keys() if n.startswith(READ_AT_START)}
        return (
            self._is_able
            and self._is_on_our_network()
            and not any(options.get(name) for name in unusual)
            and options["executable"] in (None, sys.executable)
            and options.get("umask", -1) == -1
            and (options.get("process_group") or -1) == -1
            and all(given.get(name) == self._environment.get(name) for name in names)
        )

    def _is_on_our_network(self) -> bool:
        """Whether this thread is in the network namespace of the template and its forks."""
        assert self._process is not None
        theirs = Path(f"/proc/{self._process.pid}/ns/net").readlink()
        return Path("/proc/thread-self/ns/net").readlink() == theirs

    def start(self, options: dict[str, Any]) -> int:
        """Fork it: the process id of a child of ours."""
        environment = os.environ if options["env"] is None else options["env"]
        request = {
            "words": [os.fspath(word) for word in options["args"][3:]],
            "environment": dict(environment),
            "directory": os.fspath(options["cwd"] or Path.cwd()),
            "new_session": bool(options["start_new_session"]),
        }
        streams = [
            own if given == -1 else given
            for own, given in enumerate(
                (options["p2cread"], options["c2pwrite"], options["errwrite"])
            )
        ]
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            pid = int(self._answer())
        if pid <= 0:
            raise OSError("the template process did not fork; see what it wrote to stderr")
        return pid

    def _answer(self) -> str:
        return self._socket.recv(64).decode() or "0"


@contextlib.contextmanager
def forking(template: Template) -> Iterator[None]:
    """Inside the block, `subprocess.Popen` forks the template wherever it can."""
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    signature = inspect.signature(execute)
    pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        options = signature.bind(self, *args, **kwargs).arguments
        if not template.can_start(options):
            execute(self, *args, **kwargs)
            return
        self.pid = template.start(options)
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in pipes))

    subprocess.Popen._execute_child = start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


# ── inside the template ──────────────────────────────────────────────────────────────────────────


def thread_id_address() -> int | None:
    """Where the C library keeps the main thread's id; the kernel writes a fork's id."""
    if not sys.platform.startswith("linux") or os.uname().machine not in SYS_CLONE:
        return None
    address = ctypes.c_void_p()
    done = ctypes.CDLL(None).prctl(PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0)
    return address.value if done == 0 else None


def fork_sibling(address: int) -> int:
    """Like os.fork(), but the new process is a child of our parent, which can wait."""
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD
    call = ctypes.PyDLL(None).syscall  # keeps the interpreter's lock
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_ulong, *[ctypes.c_void_p] * 4]
    number = SYS_CLONE[os.uname().machine]
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(call(number, flags, None, None, address, None))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def serve(channel: socket.socket, address: int) -> list[str] | None:
    """Answer requests for forks until the test's process is gone.

    Returns the command line in a fork, and None at the end of the template process.
    """
    while True:
        message, streams, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 3)
        if not message:
            return None
        pid = fork_sibling(address)
        if pid == 0:
            channel.close()
            return become(json.loads(message), streams)
        for stream in streams:
            os.close(stream)
        channel.send(str(pid).encode())


def become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """In the fork: apply what `exec` would have been given; returns the command line."""
    if request["new_session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.path[0] = request["directory"]
    return [str(word) for word in request["words"]]


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    address = thread_id_address()
    if address is None:
        channel.send(b"0")
        return
    gc.disable()
    for name in IMPORTED_AHEAD:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    trial = fork_sibling(address)
    if trial == 0:
        os._exit(0)
    channel.send(str(trial).encode())
    words = serve(channel, address)
    if words is not None:
        sys.argv = [str(ROOT / "src" / "faultline" / "__main__.py"), *words]
        runpy.run_module("faultline", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
