"""The commands demo, drill and bench of `faultline`: one module per command."""
