"""Collectives, DDP and DataParallel as `ddpdoctor check` runs them on this machine."""
