"""To which device a checkpoint is loaded."""
