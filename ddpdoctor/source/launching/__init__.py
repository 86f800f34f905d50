"""What starts a training: scripts of the shell, Dockerfiles, YAML, and the command lines of launchers in them."""
