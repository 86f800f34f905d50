"""What each rank has of its own, and the training computes with: statistics, numbers, banks, contrasts."""
