"""Ailments of samplers and loaders."""
