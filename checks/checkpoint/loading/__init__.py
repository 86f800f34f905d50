"""Files that torch.load refuses, or loads to the wrong place."""
