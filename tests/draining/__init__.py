"""Workers that stop: on request, by a signal, or because their supervisor died."""
