"""The watch where a framework expects a callback: one module a framework, which imports it."""
