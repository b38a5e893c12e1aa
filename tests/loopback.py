"""An address of this machine that nobody else listens on, or comes from."""

from __future__ import annotations

import random


def own_address() -> str:
    """All of 127/8 is this machine. A port that was free on 127.0.0.1 a moment ago may be taken since: by
    another test, or by any connection that goes out from it. Here every port is free, and stays so."""
    return f"127.{random.randint(16, 254)}.{random.randint(0, 254)}.{random.randint(2, 254)}"
