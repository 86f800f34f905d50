"""Copies of the model that are not the same on all ranks."""
