"""Backward passes of a wrapped model: steps that fail, and backwards that pass the framework by."""
