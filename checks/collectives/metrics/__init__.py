"""Metrics and losses that each rank computes of its own share, and that are told as those of all."""
