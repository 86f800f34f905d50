"""What the installed torch was built with, and for."""
