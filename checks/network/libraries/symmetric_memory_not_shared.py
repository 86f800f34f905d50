"""torch's symmetric memory cannot be shared between the ranks of a group.

## What happens

Symmetric memory (asynchronous tensor parallelism, all-to-all of experts) lets the GPUs of a group read each other's
memory. Its CUDA backend hands a file descriptor from rank to rank through a socket of the host's file system, so it
serves one host: with ranks of another, or of a container with its own /tmp, "Failed to send fd: No such file or
directory". The NCCL backend registers memory with the group's communicator, which only a first collective makes:
"Failed to window register segment", "invalid argument". Builds of torch up to 2.5 that were made for an old kernel say
"requires pidfd_open and pidfd_getfd support". A backend is chosen by
`symm_mem.set_backend` or TORCH_SYMMMEM, and a build that has none of that name says "SymmetricMemory does not find
allocation backend NVSHMEM".

## How to be sure

The same script runs on one host; or, with the NCCL backend, after `dist.barrier()`.

## How to mend it

Between hosts, `symm_mem.set_backend("NVSHMEM")` before the first memory is made, or a group of the ranks of one host.
With NCCL, a collective on the group first. Elsewhere a later torch.

## Versions and sources

Of reports with torch 2.5 to 2.12; not run here. Source: torch/csrc/distributed/c10d/symm_mem; pytorch/pytorch#171495,
pytorch/pytorch#188567, pytorch/pytorch#157321.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP349", Severity.ERROR)


@log_pattern(r"RuntimeError: [Ff]ailed to send fd: No such file or directory")
def by_a_descriptor(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The peer's socket is a file, which is not there for a rank of another host or container."""
    yield Finding(
        "symmetric memory goes from rank to rank by a file descriptor, and the peer's socket is not on this host",
        (record.proof(match, "a group whose ranks are on one host, and share /tmp"),),
        Fix(
            "share it by NVSHMEM between hosts, or within the ranks of a host",
            diff="+import torch.distributed._symmetric_memory as symm_mem\n"
            '+symm_mem.set_backend("NVSHMEM")   # before the first symm_mem.empty()',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the group has ranks of several hosts, and the CUDA backend serves one",
                "the ranks of one host are in containers, or sandboxes, of which each has its own /tmp",
            ),
            'echo "$(hostname) $RANK $LOCAL_RANK $GROUP_WORLD_SIZE"; ls -di /tmp   # in each rank',
        ),
    )


@log_pattern(r"Failed to window register segment|NCCLSymmetricMemory\.cu:\d+, invalid argument")
def by_a_window(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL is asked to register memory for a communicator that no collective has made yet."""
    yield Finding(
        "NCCL cannot register symmetric memory for this group",
        (record.proof(match, "a communicator that is there, and memory of NCCL's allocator"),),
        Fix(
            "let the group do a collective before the memory is shared",
            diff="+dist.barrier(group)   # NCCL makes the communicator at the first collective\n"
            " symm_mem.rendezvous(buffer, group)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "this is the first that the group does with NCCL: its communicator is not made",
                "NCCL_CUMEM_ENABLE=0 is set, or the driver does not share memory as NCCL wants it",
            ),
            "env | grep NCCL_; NCCL_DEBUG=WARN torchrun ... 2>&1 | grep -m3 'NCCL WARN'",
        ),
    )


@log_pattern(r"SymmetricMemory does not find allocation backend (?P<name>\w{1,40})")
def by_no_backend(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The backend is asked for by name, and this build of torch has not registered one of that name."""
    name = match["name"]
    yield Finding(
        f"this build of torch has no backend {name} for symmetric memory",
        (record.proof(match, "a backend that this build has: CUDA, on a GPU of NVIDIA"),),
        Fix(
            "leave the choice to torch, which takes what it was built with; or install a build that has the backend",
            diff=f'-symm_mem.set_backend("{name}")\n',
            command="unset TORCH_SYMMMEM   # the variable asks for it, too\n"
            "pip list | grep -iE '^(torch|nvidia-nvshmem|nvidia-nccl)'",
        ),
        record.place,
    )


@log_pattern(r"(?:CUDASymmetricMemory|IntraNodeComm) requires pidfd_open and pidfd_getfd support")
def by_the_build(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """It is the system that torch was built on that lacks the calls, whatever this one has."""
    yield Finding(
        "this build of torch cannot share symmetric memory: it was made on a system without pidfd_getfd",
        (record.proof(match, "a build that hands descriptors on by a socket"),),
        Fix(
            "take a later torch; until then leave symmetric memory out",
            command="pip install --upgrade torch\nunset ENABLE_INTRA_NODE_COMM",
        ),
        record.place,
    )
