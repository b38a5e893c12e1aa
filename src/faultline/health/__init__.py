"""Health of processes without an HTTP port: a file that probes read.

`health_file` defines, writes and reads the file, `probe` (pure) judges it, and `writer` is the thread that
writes it. Probes start every few seconds, so `health_file` and `probe` import almost nothing.
"""
