"""Workers that are asked to leave: by an operator, by a signal, by the death of their supervisor."""
