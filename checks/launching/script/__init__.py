"""The script that is launched: it is not there, refuses its arguments or settings, or cannot import what it needs."""
