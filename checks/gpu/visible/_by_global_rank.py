"""GPUs that a global rank names, which counts over all hosts."""

from __future__ import annotations

import re

from ddpdoctor.check import (
    Ambiguity,
    Finding,
    Fix,
    Record,
)

USUAL = 8  # GPUs of a host: a rank of this number, or a higher one, is on another host than the first
LOCAL = re.compile(r"local_?(?:process_)?(?:rank|index)", re.IGNORECASE)
GLOBAL = re.compile(
    r"(?:set_device|\.to|\.cuda|device_ids=\[?|cuda:\{)\(?(?:self\.|args\.|dist\.get_)?(?:global_)?rank\b|_shard/sharding_spec/"
)


def by_global_rank(record: Record, lowest: int) -> bool:
    """Whether the number of the GPU may be a global rank's: the call says so, or the rank is beyond a usual host's."""
    return not LOCAL.search(record.text) and (lowest >= USUAL or GLOBAL.search(record.text) is not None)


def counted_over_hosts(record: Record, match: re.Match[str], many: str) -> Finding:
    return Finding(
        f"{many} asks for a GPU of a number that its host does not have",
        (record.proof(match, "a number below torch.cuda.device_count()"),),
        Fix(
            "choose the GPU by the local rank: the global one counts over all hosts",
            diff='-torch.cuda.set_device(rank)\n+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the global rank names the GPU, on a later host (as the sharded checkpoints of torch 2.0 do)",
                "more ranks are started on this host than it has visible GPUs",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$RANK" "$LOCAL_RANK"',
        ),
    )
