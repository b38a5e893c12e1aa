"""One PostgreSQL for the run; each test gets a fresh database with the schema.

`FAULTLINE_TEST_DATABASE_URL` names a server to use; otherwise one of our own is started, of the
major version `FAULTLINE_TEST_PG` (any that `faultline.embedded.all_binaries` finds).
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import psycopg
import pytest
from psycopg import sql

from faultline import Faultline, embedded
from faultline.events import log
from tests.preforked import Template, forking
from tests.running import EventTap

pytest_plugins = ["tests.order", "tests.proof", "tests.cpu_time"]

Connect = Callable[[], psycopg.Connection[Any]]

# Tests may lose a server, never a commit that was reported: so commits stay synchronous.
# A client that is stopped in the middle of logging in holds up every CREATE and DROP DATABASE on the
# server until its time is up: a minute by default.
TEST_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "authentication_timeout": "10s",
}
# The tests of these folders strike processes at work, and do not look at how they start.
FORKS_PROCESSES = {
    *(
        "api",
        "campaign",
        "children",
        "dashboard",
        "drills",
        "failover",
        "failure_modes",
        "inspector",
    ),
    *("metrics", "poolers", "processes", "soak", "sweep", "tracing"),
}
TEMPLATE_LOCK = 0x464C54  # any number that nothing else on the test server locks


def roomy_memory() -> Path | None:
    """A directory in memory with room for all test databases; halves their creation."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30:
        return memory
    return None


class Run:
    """What the process that pytest was started as owns on behalf of all workers."""

    def __init__(self) -> None:
        self.run_id = secrets.token_hex(4)
        self._cleanup = contextlib.ExitStack()
        self._url: str | None = os.environ.get("FAULTLINE_TEST_DATABASE_URL")
        if self._url:  # a server that outlives the run is left as it was found
            self._cleanup.callback(drop_database, self._url, template_name(self.run_id))

    @property
    def url(self) -> str:
        if self._url is None:
            binaries = embedded.find_binaries(os.environ.get("FAULTLINE_TEST_PG"))
            server = embedded.temporary_server(
                binaries=binaries, settings=TEST_SETTINGS, parent=roomy_memory()
            )
            self._url = self._cleanup.enter_context(server).url
            make_logins_cheap(self._url)
        return self._url

    def close(self) -> None:
        self._cleanup.close()


RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    # Hundreds of processes are started: those that may not keep bytecode would each compile everything.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A run in a shell's background is deaf to SIGINT, and so would be whatever the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # An example that is slow once, because the machine is busy, says nothing.
    hypothesis.settings.register_profile(
        "faultline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("faultline")
    if not hasattr(config, "workerinput"):
        config.stash[RUN] = Run()


def pytest_collection_finish() -> None:
    """Keep imported objects out of the garbage collector's hundreds of later passes."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist is about to start a worker: tell it where the one server is."""
    run = node.config.stash[RUN]
    node.workerinput["faultline"] = (run.url, run.run_id)


def pytest_unconfigure(config: pytest.Config) -> None:
    if run := config.stash.get(RUN, None):
        run.close()


def make_logins_cheap(server_url: str) -> None:
    """Lower the cost of password hashing, which is most of a login's cost.

    The suite opens thousands of sessions.
    """
    with psycopg.connect(server_url, autocommit=True) as admin:
        if admin.info.server_version >= 160000:
            admin.execute("SET scram_iterations = 1")
            password = sql.Literal(urlsplit(server_url).password)
            admin.execute(sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(password))


def template_name(run_id: str) -> str:
    return f"faultline_template_{run_id}"


def url_of(server_url: str, database: str) -> str:
    return urlsplit(server_url)._replace(path=f"/{database}").geturl()


def administer(server_url: str, statement: str, *names: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def drop_database(server_url: str, name: str) -> None:
    administer(server_url, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


@pytest.fixture(scope="session")
def run_facts(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The server's URL and the run's id, in a worker or in the only process there is."""
    if hasattr(request.config, "workerinput"):
        url, run_id = request.config.workerinput["faultline"]
        return url, run_id
    run = request.config.stash[RUN]
    return run.url, run.run_id


@pytest.fixture(scope="session")
def server_url(run_facts: tuple[str, str]) -> str:
    return run_facts[0]


@pytest.fixture(scope="session")
def template(run_facts: tuple[str, str]) -> str:
    """The name of a database with the schema, created once per run on first use."""
    from faultline.postgres.migrate import migrate
    from faultline.postgres.sessions import run
    from faultline.statements import epochs

    url, run_id = run_facts
    name = template_name(run_id)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET lock_timeout = '60s'")
        admin.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
        if admin.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            draft = f"{name}_draft"
            administer(url, "CREATE DATABASE {}", draft)
            try:
                migrate(url_of(url, draft))
                with psycopg.connect(url_of(url, draft), autocommit=True) as conn:
                    run(conn, epochs.forget_database())  # copies of it are claimed from
                administer(url, "ALTER DATABASE {} ALLOW_CONNECTIONS false", draft)
                administer(url, "ALTER DATABASE {} RENAME TO {}", draft, name)
            finally:
                drop_database(url, draft)
    return name


NewDatabase = Callable[..., contextlib.AbstractContextManager[str]]


@pytest.fixture(scope="session")
def new_database(server_url: str) -> Iterator[NewDatabase]:
    """Creates databases that are dropped at the end of their block, over one session."""
    with psycopg.connect(server_url, autocommit=True) as admin:
        # Half the work of writing every page to the log, where its checkpoints flush nothing.
        flushes = admin.execute("SHOW fsync").fetchone() != ("off",)
        can_choose = admin.info.server_version >= 150000
        strategy = " STRATEGY file_copy" if can_choose and not flushes else ""

        def run(statement: str, *names: str) -> None:
            admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

        @contextlib.contextmanager
        def make(template: str = "template1") -> Iterator[str]:
            name = f"t_{secrets.token_hex(6)}"
            run("CREATE DATABASE {} TEMPLATE {}" + strategy, name, template)
            try:
                yield url_of(server_url, name)
            finally:
                run("DROP DATABASE {} WITH (FORCE)", name)

        yield make


@pytest.fixture
def database_url(new_database: NewDatabase, template: str) -> Iterator[str]:
    """A database of the test's own, with the schema."""
    with new_database(template) as url:
        yield url


@pytest.fixture
def empty_database_url(new_database: NewDatabase) -> Iterator[str]:
    """A database of the test's own, without the schema."""
    with new_database() as url:
        yield url


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    """Opens autocommit connections to the test's database; closes them after the test."""
    with contextlib.ExitStack() as opened:

        def make() -> psycopg.Connection[Any]:
            connection = psycopg.connect(database_url, autocommit=True)
            opened.callback(connection.close)
            return connection

        yield make


@pytest.fixture
def conn(connect: Connect) -> psycopg.Connection[Any]:
    return connect()


@pytest.fixture
def app(database_url: str) -> Iterator[Faultline]:
    """An application on the test's own database."""
    application = Faultline(database_url)
    yield application
    application.close()


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> str:
    """A table of the user's own, to see whose writes took effect."""
    conn.execute("CREATE TABLE effects (note text)")
    return "effects"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> EventTap:
    """Every event that is logged from now on, routine events included."""
    stream = StringIO()
    monkeypatch.setattr(log, "_logger", None)
    monkeypatch.setattr(log, "_is_verbose", False)
    log.open(style="json", verbose=True, stream=stream)
    return EventTap(stream)


@pytest.fixture(scope="session")
def template_process() -> Iterator[Template]:
    """A process that has imported Faultline, started at the first request for a fork."""
    template = Template()
    yield template
    template.close()


@pytest.fixture(autouse=True)
def forked_processes(request: pytest.FixtureRequest, template_process: Template) -> Iterator[None]:
    """Starts the processes of some folders' tests by a fork; see tests/preforked.py."""
    with contextlib.ExitStack() as stack:
        is_marked = request.node.get_closest_marker
        may_fork = request.path.parent.name in FORKS_PROCESSES and not is_marked("executes")
        if may_fork or is_marked("forks"):
            stack.enter_context(forking(template_process))
        yield


@pytest.fixture
def home() -> Iterator[Path]:
    """Like tmp_path, but open to the account of servers when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="faultline-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)
