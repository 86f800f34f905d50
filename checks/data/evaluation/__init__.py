"""Evaluations and metrics over all ranks."""
