"""What the ranks send each other takes long, or is not hidden behind the computing."""
