"""What DDP, or a compiler of it, refuses in a model."""
