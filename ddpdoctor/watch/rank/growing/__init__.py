"""What a rank keeps more of with each step: graphs of earlier losses, hooks, compiled code."""
