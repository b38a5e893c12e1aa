"""Sections of the report that measure Faultline alone."""
