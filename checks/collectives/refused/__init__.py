"""Calls that torch refuses, or that do not do what they say."""
