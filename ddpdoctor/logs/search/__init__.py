"""Finds the few lines of a log that are worth a look."""
