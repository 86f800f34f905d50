"""The signs of a GPU that is full, and of a checkpoint that was loaded before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Log, Record

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence

FULL = r"CUDA out of memory\. Tried to allocate|CUDA error: out of memory"
LOADING = r"torch[/\\]serialization\.py"
FOREIGN = r"Process \d+ has [\d.]+ \w+ memory in use"
RESUMED = (
    r"\b[Rr]esum(?:e|ed|ing)\b[^\n]{0,40}\b(?:from|checkpoint|training)\b"
    r"|Restor(?:ing|ed) (?:all )?states from the checkpoint|load_from_checkpoint|=> loaded checkpoint"
    r"|Loading states from|(?m:^)[^\n]{0,40}\b[Ll]oad(?:ing|ed)? optimizer\b[^\n]{0,40}\.\w{2,4}\b"
)
NEAR = 80  # lines between the word of a resume and the error; further on, the training itself filled the GPU


def resumed(record: Record, log: Log) -> tuple[Evidence, ...]:
    """Quote the last word of a resume shortly before the record, or in its frames."""
    if match := re.search(RESUMED, record.text):
        return (record.proof(match),)
    before = [
        (other, match)
        for other, match in log.find(RESUMED)
        if other.source == record.source and 0 <= record.line - other.line <= NEAR
    ]
    return (before[-1][0].proof(before[-1][1]),) if before else ()
