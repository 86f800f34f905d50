"""Starts the user's command, passes signals on to it, and ends it."""
