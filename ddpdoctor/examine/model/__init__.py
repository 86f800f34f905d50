"""The examination of the user's model, by small real jobs."""
