"""What is wrapped, when and how often."""
