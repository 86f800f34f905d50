"""Gradients that are clipped, scaled or unscaled at the wrong moment."""
