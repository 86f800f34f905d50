"""Ranks that wait: for data, or for a rank that is slower."""
