"""CUDA at work: memory, kernels, libraries."""
