"""A PostgreSQL server on a simulated host, reached over the network."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from psycopg import conninfo

from faultline.embedded.process import chown_to_server_account
from faultline.embedded.server import Server
from faultline_drills.servers.hosts import PREFIX, Host, HostNetwork, host_network

_ACCESS = ("local all all", "host all all 127.0.0.1/32", f"host all all {PREFIX}.0/24")


class HostedServer(Server):
    """Listens on its host's address and on a Unix socket.

    The drill itself is on no host of the network; it uses the socket, which no partition cuts.
    """

    def __init__(
        self,
        home: Path,
        host: Host,
        hosts: HostNetwork,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home / "data", settings=settings, ephemeral=True)
        self.host = host
        self.network = hosts
        self._sockets = home / "sockets"
        self._sockets.mkdir()
        access = home / "pg_hba.conf"
        access.write_text("".join(f"{line} scram-sha-256\n" for line in _ACCESS))
        chown_to_server_account(self._sockets, access)
        self._settings |= {
            "listen_addresses": f"127.0.0.1,{host.address}",
            "unix_socket_directories": str(self._sockets),
            "hba_file": str(access),
        }

    @property
    def url(self) -> str:
        return conninfo.make_conninfo(super().url, host=str(self._sockets))

    def url_from_hosts(self, database_url: str, **more: str) -> str:
        """The URL of this database for another host; `more` are further URL parameters."""
        return conninfo.make_conninfo(database_url, host=self.host.address, **more)

    def start(self, timeout_seconds: float = 30) -> None:
        start = super().start
        self.host.run(lambda: start(timeout_seconds))


@contextlib.contextmanager
def server_on_a_host(*, settings: Mapping[str, str] | None = None) -> Iterator[HostedServer]:
    """A host network with a database server on it, for the length of the `with` block."""
    with (
        host_network() as hosts,
        tempfile.TemporaryDirectory(prefix="faultline-hosts-", dir="/tmp") as folder,
    ):
        home = Path(folder)
        home.chmod(0o711)
        server = HostedServer(home, hosts.host("database"), hosts, settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.stop(mode="immediate")
