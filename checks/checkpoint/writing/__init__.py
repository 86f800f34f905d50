"""Files, checkpoints among them, that several ranks write or read at once."""
