"""Failure drills: rehearsed failures with a verdict, on real processes and a real PostgreSQL."""
