"""Faultline inside of other libraries: each adapter is a module of its own."""
