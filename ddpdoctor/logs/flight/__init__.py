"""The dumps of torch's flight recorder, and what those of several ranks say together."""
