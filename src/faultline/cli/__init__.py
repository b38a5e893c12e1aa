"""The `faultline` command line."""
