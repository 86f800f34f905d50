"""Ranks that come one after the other, or in another order, by the source at the lines where they wait."""
