"""Ranks, node ranks, and how many there are."""
