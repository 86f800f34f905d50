"""The address and port at which the ranks meet."""
