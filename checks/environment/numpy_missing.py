"""numpy is not installed, and torch's object collectives need it.

torch runs without numpy, but all_gather_object, broadcast_object_list and their like then raise "RuntimeError:
Numpy is not available", and so do Tensor.numpy() and torch.from_numpy(). Libraries that gather metrics or
checkpoint metadata over the ranks use them.

To be sure: `python -c "import numpy"`.

A note: a training that uses none of these is well without. Since torch 2.0 numpy is no dependency of torch's wheel.
Seen with torch 2.13 (CPU build).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Severity
from ddpdoctor.check import probe

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP114", Severity.NOTE)


@probe
def installed(facts: Facts) -> Iterator[Finding]:
    """Look for the distribution."""
    if facts.versions.torch is None:
        raise NotRun("torch is not installed")
    if "numpy" not in facts.versions.frameworks:
        yield Finding(
            f"numpy is not installed beside torch {facts.versions.torch}: object collectives raise an error",
            (Evidence("no distribution called numpy", "numpy", "installed packages"),),
            Fix("install it", command="pip install numpy"),
        )
