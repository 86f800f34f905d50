"""What a training holds beside the parameters of its optimizers."""
