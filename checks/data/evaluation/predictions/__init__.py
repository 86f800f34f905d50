"""Predictions of all ranks: of one rank alone, in another order, padded, or gathered as something else."""
