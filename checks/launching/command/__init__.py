"""The command that launches: its options, its counts, and what it hands to the script."""
