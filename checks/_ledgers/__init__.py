"""Gradients, replicas and updates as the ranks tell them, for the checks of several areas."""
