"""The command `doctor` and its checks."""

from faultline.cli.doctor.command import doctor

__all__ = ["doctor"]
