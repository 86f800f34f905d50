"""What wraps a model for several ranks in a source, and what is settled by that."""
