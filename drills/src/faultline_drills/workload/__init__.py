"""The jobs of drills, the faults that they cause, and the external store."""
