"""A TCP proxy in front of PostgreSQL that parses its protocol and fails on demand."""

from faultline_drills.proxy.conditions import Direction
from faultline_drills.proxy.connection import ProxiedConnection
from faultline_drills.proxy.interception import Action, Interception, Match
from faultline_drills.proxy.proxy import Proxy, proxy_to
from faultline_drills.proxy.wire import Message, MessageKind

__all__ = [
    "Action",
    "Direction",
    "Interception",
    "Match",
    "Message",
    "MessageKind",
    "ProxiedConnection",
    "Proxy",
    "proxy_to",
]
