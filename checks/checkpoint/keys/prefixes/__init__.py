"""Keys that carry the prefix of a wrapper, or have lost one."""
