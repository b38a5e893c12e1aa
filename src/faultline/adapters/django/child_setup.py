"""Sets Django up in a child process, before it imports the module of a handler."""

import django

django.setup()
