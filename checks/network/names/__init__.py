"""Names and addresses of hosts."""
