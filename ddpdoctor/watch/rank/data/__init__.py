"""What a rank records of its loaders and data sets."""
