"""Rich arguments of tasks: their annotations decide how they travel as JSON."""

from __future__ import annotations

from faultline.arguments.handler_arguments import ArgumentCodec

__all__ = ["ArgumentCodec"]
