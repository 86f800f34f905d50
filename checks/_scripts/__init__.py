"""What the source of a training says, for the checks of several areas."""
