"""Slurm, Kubernetes, Ray and ssh, and what they end or refuse."""
