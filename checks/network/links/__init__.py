"""Ports and links between hosts, and the peers at their other ends."""
