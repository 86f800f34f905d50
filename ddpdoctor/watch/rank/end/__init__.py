"""How a rank ends: by an exception, by an exit, or by Ctrl-C."""
