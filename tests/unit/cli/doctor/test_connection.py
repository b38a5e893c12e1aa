"""What `doctor` makes of the way to a server, for every way there is."""

from __future__ import annotations

import pytest

from faultline.cli.doctor.check import Level
from faultline.cli.doctor.connection import ConnectionSecurity, judge


@pytest.mark.parametrize(
    ("passage", "level"),
    [
        (ConnectionSecurity(True, None, "prefer"), Level.OK),
        (ConnectionSecurity(True, "TLSv1.3", "require"), Level.OK),
        (ConnectionSecurity(True, "TLSv1.3", "verify-full"), Level.OK),
        (ConnectionSecurity(False, None, "prefer"), Level.WARNING),
        (ConnectionSecurity(False, None, "disable"), Level.WARNING),
        (ConnectionSecurity(False, "TLSv1.3", "prefer"), Level.WARNING),
        (ConnectionSecurity(False, "TLSv1.3", "require"), Level.WARNING),
        (ConnectionSecurity(False, "TLSv1.3", "verify-ca"), Level.WARNING),
        (ConnectionSecurity(False, "TLSv1.3", "verify-full"), Level.OK),
    ],
)
def test_doctor_warns_of_every_unverified_remote_connection(
    passage: ConnectionSecurity, level: Level
) -> None:
    assert judge(passage).level is level
