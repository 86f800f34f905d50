"""The signs of FSDP beside a refusal of `load_state_dict`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.check import Log, Record

if TYPE_CHECKING:
    from ._refusal import Refusal

FSDP_KEY = re.compile(r"_fsdp_wrapped_module\.|_fpw_module\.|(?:^|\.)_?flat_param(?:_\d+)?(?:$|\.)")
SHARDED = r"FSDPStrategy|strategies[/\\]fsdp\.py|FullyShardedDataParallel|fully_shard\b|\bDTensor\b|strategy=['\"]fsdp"


def is_sharded(record: Record, log: Log) -> re.Match[str] | None:
    """Find FSDP in the record, else in the log, which was asked for the pattern."""
    if found := re.search(SHARDED, record.text):
        return found
    other = log.first(SHARDED)
    return other[1] if other else None


def is_uneven(refused: Refusal, record: Record, log: Log) -> bool:
    """Recognise shards: under FSDP, sizes that differ in the first dimension alone, and no key that does not fit."""
    rests = [(shape.file.partition(",")[2], shape.model.partition(",")[2]) for shape in refused.shapes]
    plain = bool(rests) and not refused.missing and not refused.unexpected
    return plain and all(one == other for one, other in rests) and is_sharded(record, log) is not None
