"""Which ranks come to a line of the source, and on what it depends."""
