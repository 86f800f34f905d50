"""Ailments of host names, interfaces, and what NCCL and gloo make of them."""
