"""More GPUs of one host are to read each other's memory than CUDA lets a GPU connect to.

## What happens

A GPU can be connected to eight others, and no more, over all programs of the host. A host with ten GPUs or more, where
each is to reach each, stops at the ninth: "peer mapping resources exhausted" (CUDA's errors 60 and 711,
CUDA_ERROR_TOO_MANY_PEERS). DataParallel, a program that moves tensors between its GPUs, and NCCL ask for such
connections.

## How to be sure

Count the GPUs that the training uses on this host (`CUDA_VISIBLE_DEVICES`): ten or more are too many where each is
connected to each. With nine or fewer, another program holds connections: a display server, an MPI that knows CUDA,
another training on the same GPUs. `nvidia-smi` lists the programs.

## How to mend it

Train on at most eight GPUs of the host, in one job or in two beside each other. Where all are needed, start one process
for each GPU (DistributedDataParallel) in place of DataParallel: then only NCCL connects GPUs, and only neighbours of
its rings. `NCCL_P2P_DISABLE=1` takes NCCL's way through host memory; it is slower, and one report says that it did not
help with ten GPUs in one process.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: CUDA Runtime API, cudaDeviceEnablePeerAccess ("a system-wide maximum of eight peer
connections"); NVIDIA/nccl#51, NVIDIA/nccl#1874, NVIDIA/nccl-tests#324, pytorch/pytorch#25019.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP220", Severity.ERROR)


@log_pattern(r"peer mapping resources exhausted|CUDA_ERROR_TOO_MANY_PEERS|cudaErrorTooManyPeers")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """CUDA says so itself; whose connections they are, it does not say."""
    yield Finding(
        "a GPU is to be connected to a ninth one, and CUDA connects it to eight at most, over all programs",
        (record.proof(match, "at most eight peers for each GPU"),),
        Fix(
            "train on eight GPUs of the host, with one process for each",
            command="CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 torchrun --nproc_per_node=8 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the training itself uses more than nine GPUs of this host, each connected to each",
                "another program holds connections: a display server, an MPI that knows CUDA, another training",
            ),
            "echo $CUDA_VISIBLE_DEVICES; nvidia-smi   # the GPUs of this training, and who else is on them",
        ),
    )
