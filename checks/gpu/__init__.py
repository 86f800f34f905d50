"""Ailments of GPUs and their drivers."""
