"""The user's own launch, cut short, watched, and undone."""
