"""What the queue is doing, over HTTP and in a terminal. By import, session and role it can only read."""
