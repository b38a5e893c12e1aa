"""Adapters for other libraries, imported by name: `faultline.adapters.fastapi`."""
