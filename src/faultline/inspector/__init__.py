"""The inspector: the dashboard and its API.

Imports, sessions and role allow it only to read.
"""
