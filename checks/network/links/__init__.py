"""Interfaces, ports and links between hosts."""
