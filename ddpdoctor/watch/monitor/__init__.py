"""The part of the watch that runs beside the ranks: it reads, compares and speaks."""
