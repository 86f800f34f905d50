"""Interfaces of a host: missing, down, or not the one that others reach."""
