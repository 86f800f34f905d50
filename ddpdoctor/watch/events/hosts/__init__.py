"""The ranks of several hosts, as lines of their logs: how they are written, and read again."""
