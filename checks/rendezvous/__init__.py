"""Ailments of the rendezvous: how the ranks find each other."""
