"""A network between clients and PostgreSQL that understands what it carries, and fails on demand."""

from faultline_drills.proxy.proxy import Proxy, proxy_to
from faultline_drills.proxy.route import Route
from faultline_drills.proxy.trap import Action, Match, Trap
from faultline_drills.proxy.weather import Direction
from faultline_drills.proxy.wire import Kind, Message

__all__ = [
    "Action",
    "Direction",
    "Kind",
    "Match",
    "Message",
    "Proxy",
    "Route",
    "Trap",
    "proxy_to",
]
