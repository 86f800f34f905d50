"""Evaluations and their metrics, as scripts have them, for the checks of several areas."""
