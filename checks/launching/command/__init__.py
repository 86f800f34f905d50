"""The command that launches: its options, and what it hands to the script."""
