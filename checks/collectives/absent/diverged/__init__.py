"""Ranks that are in different places of the program, or past a call that another one waits in."""
