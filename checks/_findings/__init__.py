"""Parts of findings that the checks of several areas share."""
