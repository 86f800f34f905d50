"""Collectives that the ranks do not call alike."""
