"""The instrument behind ``ddpdoctor lint``: what stands wrong in the source, without running it."""
