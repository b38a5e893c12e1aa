"""A loopback address that no other process listens on or connects from."""

from __future__ import annotations

import random


def own_address() -> str:
    """A random address of 127.0.0.0/8, on which every port is free and stays free.

    On 127.0.0.1 another test, or any outgoing connection, may take a port that was free a moment ago.
    """
    return f"127.{random.randint(16, 254)}.{random.randint(0, 254)}.{random.randint(2, 254)}"
