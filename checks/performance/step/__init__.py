"""Lines of the user's own that a step waits for."""
