"""The examination of what the user names: a model, a loader."""
