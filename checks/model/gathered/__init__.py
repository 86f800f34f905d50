"""What ranks gather from each other inside a loss: products of all samples, banks of them, and their gradients."""
