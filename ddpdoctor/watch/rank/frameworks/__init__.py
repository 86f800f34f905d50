"""The frameworks that a rank trains with: what each does to loops, metrics and stops."""
