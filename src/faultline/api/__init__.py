"""The producer API: enqueue, look at and operate jobs over HTTP. `faultline api` serves it.

Nothing here imports the web framework: `faultline.api.application` does.
"""

from faultline.api.settings import ApiSettings

__all__ = ["ApiSettings"]
