"""Slurm: its batch scripts, tasks, nodes and credentials."""
