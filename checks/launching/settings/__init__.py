"""Arguments and settings that the script, or what it calls, refuses."""
