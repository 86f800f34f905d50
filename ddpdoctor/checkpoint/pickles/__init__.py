"""What a pickle describes, read without running it."""
