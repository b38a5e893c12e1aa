"""The jobs that drills run, the faults that they cause, and the external store they call."""
