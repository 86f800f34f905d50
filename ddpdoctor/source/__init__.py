"""What a source file says, without running it."""
