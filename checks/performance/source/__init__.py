"""What the source says of a line in the steps of a training: a loop, a hook, work that is done again."""
