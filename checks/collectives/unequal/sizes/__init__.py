"""Tensors whose sizes differ between the ranks, and how they are made alike."""
