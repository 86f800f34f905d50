"""The rendezvous of torchrun, and its store."""
