"""Shapes that count on the whole of what a replica, or a rank, has a part of."""

from __future__ import annotations

import re
from math import prod

from ddpdoctor.check import Ambiguity, Finding, Fix, Record

VIEW = r"shape '\[(?P<shape>[-\d, ]{1,80})\]' is invalid for input of size (?P<size>\d+)"
REPLICA = r"\bin replica \d+ on device \d+|torch[/\\]nn[/\\]parallel[/\\](?:parallel_apply|data_parallel)\.py"
ONE_GPU = "CUDA_VISIBLE_DEVICES=0 python train.py"


def of_a_part(record: Record, match: re.Match[str], ranks: int) -> Finding | None:
    """Return what is said of a shape that takes more than a GPU's, or a rank's, part has; None for another one."""
    found = re.search(VIEW, match[0])
    if found is None:
        return None
    sizes = [int(each) for each in found["shape"].split(",")]
    wanted, size = prod(each for each in sizes if each > 0), int(found["size"])
    if re.search(REPLICA, record.text) and wanted and (wanted > size or size % wanted):
        return _of_a_replica(record, match, sizes)
    if ranks > 1 and -1 not in sizes and wanted == size * ranks:
        return _of_a_rank(record, match, f"{size} numbers are to be made the shape {sizes}", ranks)
    return None


def _of_a_replica(record: Record, match: re.Match[str], sizes: list[int]) -> Finding:
    return Finding(
        f"a copy of the model, which DataParallel gives its GPU's part of the batch, does not fit the shape {sizes}",
        (record.proof(match, "a shape whose first size is that of what comes in"),),
        Fix("take the batch's size from the tensor", diff="-x = x.view(batch_size, -1)\n+x = x.view(x.size(0), -1)"),
        record.place,
        ambiguity=Ambiguity(
            ("the line counts on the size of the whole batch", "the shape does not fit on one GPU either"),
            f"{ONE_GPU}   # goes: the first",
        ),
    )


def _of_a_rank(record: Record, match: re.Match[str], what: str, ranks: int) -> Finding:
    return Finding(
        f"{what}, which takes {ranks} times as many, and {ranks} ranks run: the tensor is one rank's part",
        (record.proof(match, "a shape of the part, or the whole tensor"),),
        Fix(
            "divide what the ranks divide, as the heads of an attention under tensor parallelism; or let the last size "
            "be found",
            diff="-q = self.wq(x).view(bs, length, self.n_heads, self.head_dim)\n"
            "+q = self.wq(x).view(bs, length, -1, self.head_dim)   # this rank's heads",
        ),
        record.place,
    )
