"""The calls of the ranks that wait, compared."""
