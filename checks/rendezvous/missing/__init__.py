"""Ranks and hosts that do not come to the rendezvous."""
