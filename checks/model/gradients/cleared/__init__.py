"""Gradients that are cleared at the wrong place of a step."""
