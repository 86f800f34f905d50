"""Ailments of models and gradients."""
