"""The examination of the user's loader, by small real jobs."""
