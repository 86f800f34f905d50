"""Ailments of memory, files, limits and crashes of the host."""
