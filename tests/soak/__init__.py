"""The soak: a whole system under a nemesis."""
