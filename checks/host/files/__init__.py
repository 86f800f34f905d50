"""File systems, and what several ranks or hosts keep there."""
