"""NCCL and its like, where they say no more than a class of errors."""
