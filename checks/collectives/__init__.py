"""Ailments of collectives, and trainings that hang."""
