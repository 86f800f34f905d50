"""Activation checkpointing computes something else in backward than in forward.

## What happens

A checkpointed block is computed again in backward, and torch compares what it saves: "Recomputed values for the
following tensors have different metadata than during the forward pass", "A different number of tensors was saved
during the original forward and recomputation". Shape, dtype or device differ, so gradients would be of another
function. With several ranks, one that raises leaves the others in their collectives.

## How to be sure

The shapes point to the cause. `[0]` where values were saved: DeepSpeed ZeRO-3 had partitioned the weight again. Half,
or twice, along the sequence: context parallelism, or a key-value cache that grows (`use_cache=True`). One row more or
less: experts of a mixture are routed anew, with noise or ties. Another dtype: autocast is not the same in backward.

## How to mend it

`use_cache=False` while training; routing and dropout without randomness of their own (`preserve_rng_state=True`);
`autocast` around the checkpointed call, not within half of it; wrap the block first with checkpointing, then with
FSDP. A data-dependent branch must not depend on anything that changes between forward and backward.

## Versions and sources

Holds for torch 2.2 to 2.13, with use_reentrant=False. Source: torch.utils.checkpoint, `check_recomputed_tensors_match`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP547", Severity.ERROR)
DIFFERS = (
    r"Recomputed values for the following tensors have different metadata than during the forward pass"
    r"|A different number of tensors was saved during the original forward and recomputation"
    r"|trying to save more tensors during recomputation than during the original forward"
)
PAIR = re.compile(
    r"saved metadata: \{'shape': torch\.Size\(\[(?P<saved>[\d, ]*)\]\), 'dtype': (?P<one>[\w.]+)[^\n]*\n[^\n{]*"
    r"recomputed metadata: \{'shape': torch\.Size\(\[(?P<again>[\d, ]*)\]\), 'dtype': (?P<other>[\w.]+)"
)
PARTITIONED = "ZeRO-3 has partitioned the weight again before the recomputation"
CACHE = "a key-value cache grows with each forward (use_cache=True)"
CONTEXT = "the sequence is split over ranks (context parallelism) in one of the two computations only"
ROUTED = "experts are routed anew: randomness or ties in the router"
CAST = "autocast is on in one of the two computations only"
BRANCH = "the block takes another branch: it depends on state that changed, on randomness, or on compiled code"


@log_pattern(DIFFERS)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Let the first pair of shapes say what is likely."""
    pair = PAIR.search(record.text)
    saved, again = _sizes(pair["saved"]) if pair else [], _sizes(pair["again"]) if pair else []
    what = f": {saved} was saved, {again} recomputed" if pair else ""
    if pair and pair["one"] != pair["other"]:
        what = f": {pair['one']} was saved, {pair['other']} recomputed"
    yield Finding(
        f"activation checkpointing recomputes something else{what}",
        (record.proof(match, "the same shapes, dtypes and number of tensors"),),
        Fix(
            "make the block compute the same twice: no cache, no routing or branch that changes between the two",
            diff="+model.config.use_cache = False   # of transformers' models\n"
            " out = checkpoint(block, x, use_reentrant=False, preserve_rng_state=True)",
        ),
        record.place,
        ambiguity=Ambiguity(
            _causes(saved, again, casts=bool(pair) and pair["one"] != pair["other"]) if pair else (BRANCH, CACHE, CAST),
            "with torch.utils.checkpoint.set_checkpoint_debug_enabled(True): step()   # prints both computations",
        ),
    )


def _causes(saved: list[int], again: list[int], *, casts: bool) -> tuple[str, ...]:
    if casts:
        return CAST, BRANCH
    if again == [0] or saved == [0]:
        return PARTITIONED, BRANCH
    unlike = [(one or 0, other or 0) for one, other in zip_longest(saved, again) if one != other]
    if len(unlike) == 1 and len(saved) == len(again):
        one, other = unlike[0]
        if other == 2 * one:
            return CACHE, CONTEXT
        if one == 2 * other:
            return CONTEXT, BRANCH
        if abs(one - other) <= max(one, other) // 10:
            return ROUTED, BRANCH
    return BRANCH, CACHE, ROUTED


def _sizes(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each.strip()]
