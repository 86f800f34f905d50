"""Ranks that failed, and launchers that say only that."""
