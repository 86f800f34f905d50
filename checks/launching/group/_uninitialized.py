"""What torch says where the default process group is missing, and how to see that SyncBatchNorm asked for it."""

from __future__ import annotations

import re

from ddpdoctor.check import Log, Record

UNINITIALIZED = r"Default process group (?:has not been|is not) initialized"
SYNC_LAYERS = r"SyncBN\b|SyncBatchNorm|sync_?batch_?norm|Sync_BN|torch[/\\]nn[/\\]modules[/\\]batchnorm\.py"


def sync_layers(record: Record, log: Log) -> tuple[Record, re.Match[str]] | None:
    """Find layers that synchronize: among the frames, or where there are none in what the program printed."""
    own = re.search(SYNC_LAYERS, record.text)
    return (record, own) if own else None if record.frames else log.first(SYNC_LAYERS)
