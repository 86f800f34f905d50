"""The instrument behind ``ddpdoctor lint``: what stands wrong in the source, without running it."""

CERTAIN, LIKELY = "certain", "likely"
"""How sure a finding is: proved by the source alone, or not."""
