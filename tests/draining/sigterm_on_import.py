"""An app that gets SIGTERM on import, in a finalizer that drops exceptions."""

from __future__ import annotations

import os
import signal

from faultline import Faultline

app = Faultline()


class Forgotten:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


forgotten = Forgotten()
del forgotten
