"""The order of each epoch: set_epoch, and what repeats."""
