"""A network between clients and PostgreSQL that understands what it carries, and fails on demand."""

from faultline.drills.proxy.proxy import Proxy, proxy_to
from faultline.drills.proxy.route import Route
from faultline.drills.proxy.trap import Action, Match, Trap
from faultline.drills.proxy.weather import Direction
from faultline.drills.proxy.wire import Kind, Message

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
