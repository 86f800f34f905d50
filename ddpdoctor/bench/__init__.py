"""The instrument behind ``bench``: what collectives cost here, and what each setting of DDP gives this model."""
