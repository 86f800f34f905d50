"""The part of the watch that runs inside each rank: it records."""
