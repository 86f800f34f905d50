"""What a name is bound to, and where a function is called: followed through the file and its project."""
