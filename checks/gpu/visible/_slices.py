"""Slices of a GPU (MIG), of which a process sees one."""

from __future__ import annotations

import re

from ddpdoctor.check import Evidence, Finding, Fix, Record

MIG = r"\(UUID: MIG-|\bMIG-GPU-[0-9a-f]|CUDA_VISIBLE_DEVICES[=:' ]{1,3}MIG-"
"""A slice as nvidia-smi -L and CUDA_VISIBLE_DEVICES name it, by its UUID."""


def of_slices(record: Record, match: re.Match[str], many: str, sliced: Evidence) -> Finding:
    """Return what is said where a rank wants a GPU of its number and the host has slices."""
    return Finding(
        f"{many} has no GPU of its number: the GPU is cut into MIG slices, and CUDA shows a process one slice, "
        "as number 0",
        (record.proof(match, "cuda:0 in a process that is given a slice"), sliced),
        Fix(
            "give each rank a slice of its own and let it use cuda:0, with gloo: NCCL does not join slices of one GPU; "
            "or take whole GPUs",
            command="nvidia-smi -L   # MIG-... are the slices\n"
            "sudo nvidia-smi -i 0 -mig 0   # whole again, while nothing runs on it",
            diff="-torch.cuda.set_device(local_rank)\n"
            "+os.environ['CUDA_VISIBLE_DEVICES'] = slices[local_rank]   # above the first use of CUDA\n"
            "+torch.cuda.set_device(0)",
        ),
        record.place,
    )
