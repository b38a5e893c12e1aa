"""The producer API: enqueue, read and operate jobs over HTTP.

`faultline api` serves it.

This module does not import the web framework; `faultline.api.application` does.
"""

from faultline.api.api_settings import ApiSettings

__all__ = ["ApiSettings"]
