"""One network path to the database, with a proxy in front of each server."""

from __future__ import annotations

from collections.abc import Sequence

from faultline_drills.cluster import multi_host_url
from faultline_drills.proxy import Direction, ProxiedConnection, Proxy


class ProxiedNetwork:
    """Applies each fault to the paths to all servers, like a broken shared cable."""

    def __init__(self, name: str, proxies: Sequence[Proxy]) -> None:
        self.name = name
        self._proxies = tuple(proxies)

    @property
    def url(self) -> str:
        """Names every server; libpq opens a session on the one that takes writes."""
        urls = [proxy.url for proxy in self._proxies]
        return multi_host_url(urls) if len(urls) > 1 else urls[0]

    @property
    def connections(self) -> list[ProxiedConnection]:
        """The open connections."""
        return [connection for proxy in self._proxies for connection in proxy.connections]

    @property
    def busiest(self) -> Proxy:
        """The proxy in front of the primary: no session stays on a standby."""
        return max(self._proxies, key=lambda proxy: len(proxy.connections))

    def blackhole(self, direction: Direction) -> None:
        for proxy in self._proxies:
            proxy.blackhole(direction=direction)

    def refuse_connections(self) -> None:
        for proxy in self._proxies:
            proxy.refuse_connections()

    def clear_faults(self) -> None:
        for proxy in self._proxies:
            proxy.clear_faults()

    def reset_all(self) -> int:
        """Reset every connection; the number of connections."""
        return sum(proxy.reset_all() for proxy in self._proxies)
