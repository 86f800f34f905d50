"""Optimizers and schedules: what they hold, and when they step."""
