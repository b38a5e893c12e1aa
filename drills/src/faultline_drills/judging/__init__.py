"""Judges a drill: the rules, the verdict with its evidence, and the measured figures. No I/O."""
