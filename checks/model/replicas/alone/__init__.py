"""What one rank, or some, do to their copy of the model, and others do not."""
