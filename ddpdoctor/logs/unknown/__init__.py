"""What is said of an error that no check knows: whose it was, and what to run next."""
