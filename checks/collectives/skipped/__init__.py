"""Collectives that some ranks do not come to."""
