"""Ailments of checkpoints."""
