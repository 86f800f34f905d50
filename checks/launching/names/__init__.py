"""Names and keys of the script that are not there, or of one rank alone."""
