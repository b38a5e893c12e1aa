"""What the HTTP API and the inspector share: the server, its limits, and who a client is."""
