"""Compares Faultline with other queues in one run: see README.md."""
