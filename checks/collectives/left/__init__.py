"""Ranks that leave a loop, or miss a step, which others go through: by a break, a stop of their own, an exception."""
