"""Ailments of launching: launchers, schedulers, the ends of processes."""
