"""One file, or folder, that several ranks write, make or delete at once."""
