"""What a rank records of its models and optimizers."""
