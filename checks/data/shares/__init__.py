"""Which samples each rank is given: all, none, another's, or of another number."""
