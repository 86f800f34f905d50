"""What the optimizers are given in the place of the mean of all ranks' gradients."""
