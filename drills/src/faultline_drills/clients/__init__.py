"""Clients of a drill inside its own process: producers and concurrent SQL sessions."""
