"""What the output of a launch says of several processes, whatever started them."""

from __future__ import annotations

SEVERAL = (
    r"torch\.distributed\.(?:launch|elastic|run)|torchrun|deepspeed\.launcher|ChildFailedError|\bsrun: "
    r"|slurmstepd: error|sigkill_handler|local_rank"
)
"""A context that a facet declares, for errors that one process alone would have another reason for."""
REMOVING = r"\bin (?:rmtree|_rmtree\w+|unlink|rename|replace|move|rmdir)\b|(?:rmtree|unlink|remove|rename)\("
"""Of a traceback: a file was being deleted or renamed."""
