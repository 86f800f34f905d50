"""What the source sums over one rank's share, and who puts the parts of all ranks together."""
