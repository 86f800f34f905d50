"""Whether gradients are exchanged: not at all, in part, or to something else than their mean."""
