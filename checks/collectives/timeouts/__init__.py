"""Time-outs, watchdogs, and ends that do not come."""
