"""A network between workers and PostgreSQL that can stall, lose answers, and break on one side only."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from psycopg import conninfo

_APPLICATION = re.compile(rb"application_name\x00([^\x00]*)\x00")


class Route:
    """One connection through the proxy: a pipe in each direction."""

    def __init__(self, client: socket.socket, server: socket.socket, stalls: set[str]) -> None:
        self._client, self._server = client, server
        self._stalls = stalls
        self._swallows_answers = False
        self._client_is_cut = False
        self.application = ""
        self.port_at_server = server.getsockname()[1]
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=pump, daemon=True).start()

    def swallow_answers(self) -> None:
        """From now on nothing that the server says arrives."""
        self._swallows_answers = True

    def cut_client(self) -> None:
        """The client loses its connection; the server does not know."""
        self._client_is_cut = True
        _close(self._client)

    def close(self) -> None:
        _close(self._client)
        _close(self._server)

    def _to_server(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(65536):
                if found := _APPLICATION.search(data):
                    self.application = found[1].decode()
                self._wait_while_stalled()
                self._server.sendall(data)
        if not self._client_is_cut:
            self.close()

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                self._wait_while_stalled()
                if not (self._swallows_answers or self._client_is_cut):
                    self._client.sendall(data)
        self.close()

    def _wait_while_stalled(self) -> None:
        while "*" in self._stalls or self.application in self._stalls:
            time.sleep(0.005)


class Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._routes: list[Route] = []
        self._stalls: set[str] = set()
        port = self._listener.getsockname()[1]
        self.url = conninfo.make_conninfo(url, host="127.0.0.1", port=port)
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, application: str = "*") -> None:
        """Hold everything that is sent from now on, or what one application sends and is sent."""
        self._stalls.add(application)

    def flow(self) -> None:
        self._stalls.clear()

    def route_of(self, port_at_server: int) -> Route:
        """The connection that the server knows by this port of its client."""
        (found,) = [route for route in self._routes if route.port_at_server == port_at_server]
        return found

    def close(self) -> None:
        self.flow()
        _close(self._listener)
        for route in self._routes:
            route.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._routes.append(Route(client, server, self._stalls))


@contextlib.contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in it, and tells the other side
    end.close()
