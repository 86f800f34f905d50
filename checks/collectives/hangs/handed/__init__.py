"""Functions that something else calls: callbacks, handlers, decorated and logged ones, by the source."""
