"""Removes from Python what Windows does not have, then runs a program.

    python without_posix.py PROGRAM ARGUMENTS…

PROGRAM is Python source, or `faultline` for the command line. Libraries are imported first: they have
code of their own for Windows, which cannot run here.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import select
import signal
import socket
import sys

LIBRARIES = (
    *(
        "click",
        "orjson",
        "psycopg",
        "psycopg_pool",
        "psycopg.types.json",
        "rich.console",
        "rich.live",
    ),
    *("structlog", "prometheus_client", "concurrent.futures.process", "multiprocessing.connection"),
    *("subprocess", "tempfile", "shutil", "getpass", "http.server", "logging.handlers", "ssl"),
    *("importlib.metadata", "zoneinfo", "psycopg.waiting", "rich.table", "rich.progress"),
)
MODULES = (
    "fcntl",
    "grp",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
)
ATTRIBUTES = {
    os: (
        *("chown", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups"),
        *("getloadavg", "getpgid", "getpgrp", "getsid", "getuid", "initgroups", "killpg", "lchown"),
        *(
            "mkfifo",
            "nice",
            "posix_spawn",
            "preadv",
            "pwritev",
            "register_at_fork",
            "sched_getaffinity",
        ),
        *("sched_yield", "setgid", "setpgid", "setsid", "setuid", "statvfs", "sysconf", "uname"),
        *(
            "wait",
            "wait3",
            "wait4",
            "waitid",
            "O_CLOEXEC",
            "O_DIRECTORY",
            "O_NOFOLLOW",
            "O_NONBLOCK",
        ),
        *("P_ALL", "P_PID", "WEXITED", "WNOHANG", "WNOWAIT", "memfd_create", "pidfd_open"),
    ),
    signal: (
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
        *("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pause"),
        *("pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigpending", "sigwait"),
        *("SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "sigtimedwait", "sigwaitinfo", "ITIMER_REAL"),
    ),
    select: ("epoll", "poll"),
    socket: ("AF_UNIX", "SO_REUSEPORT", "TCP_USER_TIMEOUT"),
}


def _not_implemented(*_: object, **__: object) -> None:
    raise NotImplementedError("as on Windows")


def remove() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    # An event loop here makes its pipe of the family that is removed; on Windows, of another one.
    socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment] # an import of it fails
    for module, names in ATTRIBUTES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    loop = asyncio.SelectorEventLoop
    loop.add_signal_handler = _not_implemented  # type: ignore[assignment,method-assign]
    # Drivers look whether this is the running loop.
    asyncio.ProactorEventLoop = type("ProactorEventLoop", (), {})  # type: ignore[attr-defined]
    sys.platform = "win32"


def main() -> None:
    program = sys.argv[1]
    del sys.argv[:2]
    remove()
    if program != "faultline":
        exec(compile(program, "program", "exec"), {"__name__": "producer"})  # noqa: S102
        return
    sys.argv.insert(0, "faultline")
    from faultline.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
