"""Ranks that do not come to their end."""
