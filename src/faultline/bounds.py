"""Limits on durations that the database enforces too; a test compares both."""

LONGEST_LEASE_SECONDS = 7 * 86_400  # faultline.checked_lease
LONGEST_RETRY_SECONDS = 100 * 366 * 86_400  # faultline.checked_delay
