"""Ailments of collectives, DDP and DataParallel themselves."""
