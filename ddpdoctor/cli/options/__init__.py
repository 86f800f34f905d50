"""What a command is given: options, settings of the project, and what has to be there."""
