"""What a look at the user's code changes in files is noted before, and put back afterwards."""
