"""Shares, batches and loaders that are empty, or longer on one rank than on another."""
