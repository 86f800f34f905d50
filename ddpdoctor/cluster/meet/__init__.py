"""How hosts meet: one serves at the master's address and port, the others come there, and all hear the same."""
