"""Ailments of checkpoints, and other files that ranks write."""
