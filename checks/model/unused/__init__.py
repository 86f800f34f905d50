"""Parameters that DDP waits for, in vain or twice."""
