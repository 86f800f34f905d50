"""Batch sizes and numbers of ranks that the command gives, and that do not go together."""
