"""What the source says of the lines that ranks wait at, and of those that one rank alone comes to."""
