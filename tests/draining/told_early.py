"""An application that is told to leave while it is imported, when what a handler raises is lost."""

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
