"""Steps of a wrapped model that fail."""
