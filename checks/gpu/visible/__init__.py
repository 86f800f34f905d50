"""Which GPU a rank sees, and takes."""
