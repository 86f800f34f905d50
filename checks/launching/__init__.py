"""Ailments of launchers, schedulers, and how processes start and end."""
