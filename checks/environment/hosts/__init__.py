"""What must be the same on all hosts."""
