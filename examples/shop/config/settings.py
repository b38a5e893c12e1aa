"""The settings of the shop; its database is the one of DATABASE_URL."""

import os

from psycopg.conninfo import conninfo_to_dict

_url = conninfo_to_dict(os.environ["DATABASE_URL"])

SECRET_KEY = "public, as this is an example"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
USE_TZ = True
ROOT_URLCONF = "config.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.get("dbname", ""),
        "USER": _url.get("user", ""),
        "PASSWORD": _url.get("password", ""),
        "HOST": _url.get("host", ""),
        "PORT": _url.get("port", ""),
    }
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "faultline.adapters.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

FAULTLINE = {"WORKER": {"concurrency": 4}}

LABELS = os.environ.get("LABELS")  # the folder in which the printer puts its labels
LABEL_SECONDS = 2.0
