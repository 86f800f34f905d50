"""Scripts and runs of one framework, for the checks of several areas."""
