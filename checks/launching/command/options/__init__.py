"""The options of a launcher, and those that it hands to the script."""
