"""What of a training hosts compare: its code, folders, settings, and the variables that it reads."""
