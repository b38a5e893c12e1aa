"""Faultline beside its peers, measured in one run: see README.md."""
