"""Bugs planted in a copy of Faultline, to see that each is found."""
