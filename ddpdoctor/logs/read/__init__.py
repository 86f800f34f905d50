"""From bytes to records: sources, lines, launchers' prefixes, clocks, tracebacks."""
