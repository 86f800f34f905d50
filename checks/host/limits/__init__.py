"""Limits of the host, or of its container, that are too low."""
