"""Ailments of models, wrappers and gradients."""
