"""Health of processes without an HTTP port: each keeps a small file up to date, and probes read it.

`health_file` defines, writes and reads the file, `probe` (pure) judges it, and `writer` is the thread that
writes it. Probes start every few seconds, so `health_file` and `probe` import almost nothing.
"""
