"""What `doctor` makes of the way to a server, for every way there is."""

from __future__ import annotations

import pytest

from faultline.cli.checks import Level
from faultline.cli.encryption import Passage, judge


@pytest.mark.parametrize(
    ("passage", "level"),
    [
        (Passage(True, None, "prefer"), Level.OK),
        (Passage(True, "TLSv1.3", "require"), Level.OK),
        (Passage(True, "TLSv1.3", "verify-full"), Level.OK),
        (Passage(False, None, "prefer"), Level.WARNING),
        (Passage(False, None, "disable"), Level.WARNING),
        (Passage(False, "TLSv1.3", "prefer"), Level.WARNING),
        (Passage(False, "TLSv1.3", "require"), Level.WARNING),
        (Passage(False, "TLSv1.3", "verify-ca"), Level.WARNING),
        (Passage(False, "TLSv1.3", "verify-full"), Level.OK),
    ],
)
def test_doctor_warns_of_every_way_to_another_machine_that_is_not_verified(
    passage: Passage, level: Level
) -> None:
    assert judge(passage).level is level
