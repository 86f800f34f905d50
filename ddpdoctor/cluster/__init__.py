"""Several hosts: what the launcher says of them, how their checks meet, and what they see of each other."""
