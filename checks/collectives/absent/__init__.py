"""Ranks that are gone, stuck, late or elsewhere, while others wait for them."""
