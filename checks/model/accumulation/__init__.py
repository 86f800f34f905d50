"""Gradients of several micro-batches, and no_sync."""
