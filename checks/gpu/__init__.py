"""Ailments of GPUs, their drivers, and which rank sees which."""
