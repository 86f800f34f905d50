"""Ailments of environment variables, versions and what is installed."""
