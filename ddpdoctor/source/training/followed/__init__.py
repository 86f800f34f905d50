"""Where a loader, a model or a batch goes in a source, through names, containers and calls."""
