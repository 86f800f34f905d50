"""Checkpoint files, read without running their pickle."""
