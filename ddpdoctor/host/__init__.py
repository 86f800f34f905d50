"""What is true of this host: environment, limits, versions, network, GPUs."""
