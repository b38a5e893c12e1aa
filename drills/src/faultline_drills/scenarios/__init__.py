"""The failures that can be rehearsed, one per file."""
