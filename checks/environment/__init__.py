"""Ailments of environment and installation."""
