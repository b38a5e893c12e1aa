"""The settings of the shop for a process of its own."""

from __future__ import annotations

import json
import os

from tests.adapters.django.project import settings_of

globals().update(settings_of(os.environ["SHOP_URL"], os.environ["ARCHIVE_URL"]))
FAULTLINE = {"MORE_DATABASES": ["archive"], **json.loads(os.environ.get("SHOP_FAULTLINE", "{}"))}
