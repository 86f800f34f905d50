"""An environment variable is misspelt, so nobody reads it.

`export CUDA_VISINLE_DEVICES=1` raises no error: CUDA uses all GPUs, NCCL picks its own interface, torchrun its own
port. The setting that was meant is silently not in force.

A variable counts as misspelt when it is one slip away (two in long names) from a variable that torch, NCCL, CUDA or
torchrun reads, is no such variable itself, and differs by more than a plural or a number. Where the right name is set
as well, the misspelt one is only a left-over, and a note.

To be sure: `env | grep -E 'CUDA|NCCL|MASTER|RANK'`.

Sources: torchrun and torch.distributed documentation, NCCL documentation ("Environment Variables"), CUDA C++
Programming Guide. The vocabulary is that of torch 2.2 to 2.13 and NCCL 2.19 to 2.28.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.vocabulary import misspelt

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP101", Severity.WARNING)


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Compare each variable's name with the known ones."""
    for name, known in misspelt(facts.environ).items():
        yield Finding(
            f"{name!r} is set, and nothing reads it: {known} is what is read",
            (Evidence(f"{name}={facts.environ[name]}", known, "environment"),),
            Fix("set the variable that is read", command=f"export {known}={shlex.quote(facts.environ[name])}"),
            Place(variable=name),
            severity=Severity.NOTE if known in facts.environ or name != name.upper() else None,
        )
