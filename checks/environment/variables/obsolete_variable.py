"""A variable is set by a name that newer torch or NCCL no longer reads.

## What happens

torch 2.2 renamed its own NCCL_* variables to TORCH_NCCL_*. The old names of four of them (NCCL_ASYNC_ERROR_HANDLING,
NCCL_BLOCKING_WAIT, NCCL_DESYNC_DEBUG, NCCL_ENABLE_TIMING) still work up to torch 2.13, with a warning, and are to be
removed. NCCL itself dropped several tuning variables, such as NCCL_RINGS and NCCL_TREE_THRESHOLD. A dropped variable
has no effect, and nothing says so.

## How to be sure

ddpdoctor compares the environment with the list of old names. An old name is not reported where the new one is set as
well. To verify it by hand, read the first lines of the log: torch warns of the old names, and NCCL says what it reads.

    TORCH_CPP_LOG_LEVEL=WARNING NCCL_DEBUG=INFO torchrun --nproc_per_node=2 train.py

## How to mend it

Set the new name to the same value, and unset the old one. Unset a dropped variable.

    export TORCH_NCCL_ENABLE_TIMING=1; unset NCCL_ENABLE_TIMING

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch's ProcessGroupNCCL.hpp (2.13: the second name of each of the four); NCCL's
sources of 2026, which still read NCCL_MIN_NRINGS, NCCL_MAX_NRINGS and NCCL_THREAD_THRESHOLDS; NCCL documentation,
"Environment Variables". PYTORCH_CUDA_ALLOC_CONF is still read by torch 2.13 beside its new name, PYTORCH_ALLOC_CONF,
and is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP105", Severity.NOTE)
NEW_NAMES = {
    name: f"TORCH_{name}"
    for name in (
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
    )
}
DROPPED = {
    "NCCL_IB_CUDA_SUPPORT": "NCCL 2.4",
    "NCCL_LL_THRESHOLD": "NCCL 2.5",
    "NCCL_RINGS": "NCCL 2.5",
    "NCCL_SINGLE_RING_THRESHOLD": "NCCL 2.3",
    "NCCL_TREE_THRESHOLD": "NCCL 2.5",
}


@probe
def by_old_names(facts: Facts) -> Iterator[Finding]:
    """Look for old names."""
    for name, new in NEW_NAMES.items():
        if name in facts.environ and new not in facts.environ:
            yield _finding(name, facts.environ[name], f"{new} since torch 2.2", f"export {new}={facts.environ[name]}; ")
    for name, version in DROPPED.items():
        if name in facts.environ:
            yield _finding(name, facts.environ[name], f"not set: dropped since {version}", "")


def _finding(name: str, value: str, expected: str, first: str) -> Finding:
    return Finding(
        f"{name} is an old name: {expected}",
        (Evidence(f"{name}={value}", expected, "environment"),),
        Fix("use what is read", command=f"{first}unset {name}"),
        Place(variable=name),
    )
