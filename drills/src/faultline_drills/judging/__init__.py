"""Judges a drill: rules, verdict with evidence, and measured figures. No I/O."""
