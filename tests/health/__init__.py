"""What a probe says of a process, and what it does not."""
