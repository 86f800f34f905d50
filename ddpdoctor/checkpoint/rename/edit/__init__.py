"""Changes of a file's bytes, each format in its own way."""
