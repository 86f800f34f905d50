"""GPUs that are broken, slowed down, or have no link to each other."""
