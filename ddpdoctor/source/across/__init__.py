"""The files of a project together: what one imports, inherits or takes from another."""
