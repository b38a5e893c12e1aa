"""One way to the database, with a proxy in front of each of its servers."""

from __future__ import annotations

from collections.abc import Sequence

from faultline_drills.cluster import as_one
from faultline_drills.proxy import Direction, Proxy, Route


class Network:
    """What is done to it is done to the way to every server, as to a cable that they share."""

    def __init__(self, name: str, proxies: Sequence[Proxy]) -> None:
        self.name = name
        self._proxies = tuple(proxies)

    @property
    def url(self) -> str:
        """Names every server there is; a session is opened on the one that takes writes."""
        urls = [proxy.url for proxy in self._proxies]
        return as_one(urls) if len(urls) > 1 else urls[0]

    @property
    def routes(self) -> list[Route]:
        """The connections that are open."""
        return [route for proxy in self._proxies for route in proxy.routes]

    @property
    def busiest(self) -> Proxy:
        """The one in front of the primary: nobody stays with a standby."""
        return max(self._proxies, key=lambda proxy: len(proxy.routes))

    def blackhole(self, direction: Direction) -> None:
        for proxy in self._proxies:
            proxy.blackhole(direction=direction)

    def refuse_connections(self) -> None:
        for proxy in self._proxies:
            proxy.refuse_connections()

    def flow(self) -> None:
        for proxy in self._proxies:
            proxy.flow()

    def reset_all(self) -> int:
        """How many connections there were."""
        return sum(proxy.reset_all() for proxy in self._proxies)
