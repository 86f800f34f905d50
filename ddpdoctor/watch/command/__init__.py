"""The user's command that is watched: its output, its exit, and its end."""
