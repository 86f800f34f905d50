"""Where a rank stands: what it waits for, and whether those who could end that are still there."""
