"""Steps of a wrapped model that fail, and parameters that take no part in them."""
