"""Data that nobody shares out: each rank, or each worker, goes through all of it."""
