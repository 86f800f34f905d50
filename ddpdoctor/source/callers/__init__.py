"""Who calls the function that a line stands in: which ranks come to it, and how often, over the files of a project."""
