"""Clients inside the drill's own process: producers and concurrent SQL sessions."""
