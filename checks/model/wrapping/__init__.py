"""What is wrapped, when and how often, and whether a wrapper can take it."""
