"""The script that is launched: it is not there, cannot import what it needs, or ends by an error of its own."""
