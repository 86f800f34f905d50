"""Names that are asked of a wrapper, of a model that has none, or of torch."""
