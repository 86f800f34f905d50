"""The signs of FSDP beside a refusal of `load_state_dict`."""

from __future__ import annotations

import re
from math import prod
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


def flat_side(refused: Refusal, record: Record, log: Log) -> str | None:
    """Tell which side, ``file`` or ``model``, holds the flat parts that FSDP makes where it keeps a model's names.

    A rank's part of a unit is cut from its parameters end to end: of some it has all values or some, in one dimension,
    and nothing of the others. Without any of the latter, the log has to show FSDP.
    """
    pairs = [(shape.file, shape.model) for shape in refused.shapes]
    for side, sizes in (("file", pairs), ("model", [pair[::-1] for pair in pairs])):
        if _is_flat_part(sizes):
            empty = any(one == "0" for one, _ in sizes)
            keys = refused.missing or refused.unexpected
            if empty or (len(sizes) > 1 and not keys and is_sharded(record, log)):
                return side
    return None


def _is_flat_part(sizes: list[tuple[str, str]]) -> bool:
    """Whether each of the first is one number, no larger than the other tensor, and one stands for a matrix."""
    if not all(one.isdigit() and other for one, other in sizes):
        return False
    fits = all(int(one) <= prod(map(int, other.split(","))) for one, other in sizes)
    return fits and any(int(one) > 1 and "," in other for one, other in sizes)
