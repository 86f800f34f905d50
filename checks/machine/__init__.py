"""Ailments of limits and resources of the host."""
