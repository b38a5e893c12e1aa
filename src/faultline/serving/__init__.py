"""The HTTP server that the API and the inspector share: limits, protocol, client identity."""
