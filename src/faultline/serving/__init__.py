"""The HTTP server of the API and the inspector: limits, protocol, clients."""
