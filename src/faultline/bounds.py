"""Limits on time spans that the database enforces too; a test holds both sides equal."""

LONGEST_LEASE_SECONDS = 7 * 86_400  # faultline.checked_lease
LONGEST_RETRY_SECONDS = 100 * 366 * 86_400  # faultline.checked_delay
