"""Ailments of samplers and data loaders."""
