"""Transformer Engine cannot set up its userbuffers, by which tensor parallelism overlaps with computing.

## What happens

With `--tp-comm-overlap` (Megatron, NeMo) or `ub_tp_comm_overlap=True`, Transformer Engine writes into the memory of the
other GPUs of a tensor parallel group by itself, past NCCL. It wants more of the machine than NCCL does:

- multicast of the NVLink switch (NVLS): "create_communicator_grouped2: CUDA Error: operation not supported" where
  driver, GPU or machine has none;
- a communicator among the ranks of one host: "Failed, NCCL error .../userbuffers-host.cpp:223" where the group is
  another set of ranks than the host's, which versions before 1.9 did not provide for;
- `initialize_ub()` before the first forward: "UB manager is not initialized", "UB for ... is not registered".

## How to be sure

The training runs without the option. `nvidia-smi topo -m` shows NV between all GPUs of the group.

## How to mend it

`UB_SKIPMC=1` leaves multicast out. A driver of the 535 series or later, and the fabric manager, bring it. Give a
tensor parallel group the ranks of one host, install Transformer Engine 1.9 or later, or leave the overlap out.

## Versions and sources

The words are those of Transformer Engine 1.4 to 1.9 in reports; not run here. Source: NVIDIA/TransformerEngine#827,
#991 and #994; transformer_engine/pytorch/module/base.py, `initialize_ub` and `get_ub`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP324", Severity.ERROR)
WITHOUT = "# or without: no --tp-comm-overlap, ub_tp_comm_overlap=False"


@log_pattern(
    r"create_communicator\w{0,20}: CUDA Error: (?P<why>operation not supported|system not yet initialized"
    r"|invalid argument|the operation cannot be performed in the present state)"
)
def by_multicast(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what CUDA says of the memory that all GPUs of the group are to write at once."""
    yield Finding(
        f"Transformer Engine's userbuffers want multicast of the NVLink switch, and CUDA refuses it: {match['why']}",
        (record.proof(match, "GPUs, a switch and a driver that have multicast (NVLS)"),),
        Fix(
            "leave multicast out, or the overlap",
            command=f"export UB_SKIPMC=1   # in each rank\n{WITHOUT}\n"
            "nvidia-smi | head -n 4; systemctl status nvidia-fabricmanager",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the driver is older than the 535 series",
                "the GPUs are joined by no NVLink switch, or the virtual machine does not show it",
                "nvidia-fabricmanager does not run, or has not set the switch up",
            ),
            "nvidia-smi topo -m; nvidia-smi -q | grep -A3 -w Fabric   # State: Completed, Status: Success",
        ),
    )


@log_pattern(r"Failed, NCCL error [^\n]{0,200}userbuffers[\w./-]{0,60}:\d+ '")
def by_the_group(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The communicator of the host's ranks was not made."""
    yield Finding(
        "Transformer Engine's userbuffers could not make a communicator for the tensor parallel group",
        (record.proof(match, "a group of ranks of one host that Transformer Engine can join"),),
        Fix(
            "install a Transformer Engine that joins the ranks of a host by itself, or leave the overlap out",
            command="pip install --upgrade 'transformer-engine[pytorch]>=1.9'\n" + WITHOUT,
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the tensor parallel group is a part of the host's ranks, which this version does not provide for",
                "the group reaches over two hosts",
                "NCCL itself fails here: NCCL_DEBUG=WARN says why",
            ),
            "pip show transformer-engine | head -n 2; NCCL_DEBUG=WARN torchrun ... 2>&1 | grep -m1 'NCCL WARN'",
        ),
    )


@log_pattern(r"AssertionError: UB (?:manager is not initialized|for \w{1,60} is not registered)")
def before_its_call(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A layer was told to overlap, and the buffers are not made, or not those of this layer."""
    yield Finding(
        "a layer overlaps its communication with computing, and Transformer Engine's userbuffers are not set up",
        (record.proof(match, "initialize_ub() after init_process_group, before the first forward"),),
        Fix(
            "set them up for the shape of the batch, on all ranks; or leave the overlap out",
            diff="+te.initialize_ub([sequence_length * batch_size, hidden_size], tp_size, use_fp8=False)\n"
            " out = layer(hidden)\nor\n-te.TransformerLayer(..., ub_tp_comm_overlap=True)\n+te.TransformerLayer(...)",
        ),
        record.place,
    )
