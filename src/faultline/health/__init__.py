"""How a process without a port says that it is well: a small file that it keeps up to date.

`report` is what stands in it, `file` how it is written and read, `verdict` (pure) what a probe makes of
it, and `pulse` the thread that writes it. A probe is started every few seconds, so the first three import
next to nothing.
"""
