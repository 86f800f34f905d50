"""How a model is cut into shards: what is wrapped, in which order, on which device."""
