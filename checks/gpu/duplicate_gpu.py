"""Two ranks use the same GPU.

## What happens

NCCL wants a GPU of its own for each rank, and refuses the second one on a host: "Duplicate GPU detected : rank 1 and
rank 0 both on CUDA device a4000" (the number is the GPU's PCI address without its points), since NCCL 2.30 "Multiple
Ranks are using the same GPU/Partition", then ncclInvalidUsage. It comes with the first collective, often a barrier or
the constructor of DDP, though the mistake is earlier: more ranks than GPUs; no set_device, so that all ranks take
cuda:0; a rank taken modulo the number of GPUs; or a launcher that showed the same GPU to two workers.

## How to be sure

Print `torch.cuda.current_device()`, `CUDA_VISIBLE_DEVICES` and `LOCAL_RANK` on each rank.

## How to mend it

`torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the first collective, and as many ranks
on a host as it has GPUs.

## Versions and sources

Holds for NCCL 2.5 to 2.30, torch 2.2 to 2.13. Source: NCCL, src/init.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP230", Severity.ERROR)
PAIR = r"Duplicate GPU detected ?: rank (\d+) and rank (\d+) both on CUDA device ([0-9a-f]+)"
FIX = Fix(
    "give each rank the GPU of its local rank, and start as many ranks as the host has GPUs",
    command="torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) train.py",
    diff='+torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n torch.distributed.init_process_group("nccl")',
)


@log_pattern(PAIR)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the ranks and the GPU; all pairs where the log has several."""
    pairs = {found.groups(): each.proof(found, "a GPU for each rank") for each, found in log.find(PAIR)}
    pairs.setdefault(match.groups(), record.proof(match, "a GPU for each rank"))
    one, other, device = match.groups()
    others = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    yield Finding(
        f"ranks {other} and {one} use the same GPU, {_address(device)}{others}",
        tuple(pairs.values())[:4],
        FIX,
        record.place if record.users else Place(rank=int(one), host=record.node),
    )


@log_pattern(r"Multiple Ranks are using the same GPU/Partition")
def since_nccl_2_30(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the newer wording, which names nobody."""
    yield Finding(
        "two ranks of this host use the same GPU", (record.proof(match, "a GPU for each rank"),), FIX, record.place
    )


def _address(device: str) -> str:
    """Write NCCL's number as a PCI address: nvidia-smi shows it so."""
    number = int(device, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF}"
