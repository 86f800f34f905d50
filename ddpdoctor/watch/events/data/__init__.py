"""What is told of a training's data: passes over loaders, what they give, and evaluations."""
