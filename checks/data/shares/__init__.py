"""Which samples each rank is given: none, another's, or of another number."""
