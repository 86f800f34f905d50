"""Ailments of network and rendezvous."""
