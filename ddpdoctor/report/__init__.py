"""Reporters: they know findings and nothing else."""
