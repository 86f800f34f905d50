"""Messages from one rank to another that are not sent, or not taken."""
