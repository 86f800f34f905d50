"""Calls that name the wrong rank or group, or none."""
