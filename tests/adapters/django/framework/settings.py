"""Settings for Django's own tests of backends, on a PostgreSQL."""

from __future__ import annotations

import os

from tests.adapters.django.project import database

SECRET_KEY = "of the tests"
USE_TZ = True
DATABASES = {"default": database(os.environ["SHOP_URL"])}
INSTALLED_APPS = ["faultline.adapters.django"]
