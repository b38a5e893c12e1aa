"""`faultline drill`: rehearsed failures, with figures and a verdict."""
