"""What is installed, and what it was built for."""
