"""The device that a script takes, or gives to a call."""
