"""Processes that start each other: spawn, fork, notebooks, CUDA before a fork."""
