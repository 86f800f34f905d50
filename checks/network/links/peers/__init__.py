"""The peers at the other ends of connections, by what a log says of them."""
