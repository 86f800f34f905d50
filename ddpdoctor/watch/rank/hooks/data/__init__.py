"""Hooks of loaders and samplers."""
