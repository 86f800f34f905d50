"""A training that hangs and was started without us: its ranks are found, looked at from outside, and told of."""
