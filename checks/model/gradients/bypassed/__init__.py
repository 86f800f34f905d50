"""Forwards that go past the wrapper, so that nothing averages their gradients."""
