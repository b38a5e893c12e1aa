"""The SQL that Faultline sends, as typed values without I/O.

Each function returns a `Statement`; `faultline.postgres.sessions` runs it, on either kind of session.
"""
