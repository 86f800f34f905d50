"""Keys that do not fit: prefixes of wrappers, other networks, nothing loaded."""
