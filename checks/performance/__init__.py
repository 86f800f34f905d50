"""Checks of trainings that are slow."""
