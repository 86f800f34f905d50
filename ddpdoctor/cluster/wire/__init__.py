"""What hosts that meet say to each other, line by line: the protocol and its two ends."""
