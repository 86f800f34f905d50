"""Ranks that have come to their end while others still wait for them."""
