"""The instrument that reads logs: records out of any output of any number of ranks, and the first cause among them."""
