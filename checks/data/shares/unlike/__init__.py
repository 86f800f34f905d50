"""Data that is not the same on all ranks before it is shared out."""
