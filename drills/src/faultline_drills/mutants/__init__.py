"""Bugs inserted into a copy of Faultline, to check that each is found."""
