"""The files and folders that checkpoints are kept in, each format in its module."""
