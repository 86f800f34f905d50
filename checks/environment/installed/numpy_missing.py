"""numpy is not installed, and torch's object collectives need it.

## What happens

torch runs without numpy. But all_gather_object, broadcast_object_list and the other object collectives then raise
"RuntimeError: Numpy is not available", and so do Tensor.numpy() and torch.from_numpy(). Libraries use these collectives
to gather metrics or checkpoint metadata over the ranks, so the error often comes only at the first validation or the
first checkpoint.

## How to be sure

ddpdoctor looks for the distribution numpy among the installed packages. The finding is a note: a training that uses
none of these functions runs without numpy. To verify it by hand, with the Python of the training, on each host:

    python -c "import numpy; print(numpy.__version__)"

## How to mend it

Install it in the environment of the training, on each host, and add it to the requirements:

    pip install numpy

## Versions and sources

Since torch 2.0 numpy is no dependency of torch's wheel. Seen with torch 2.13 (CPU build).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP114", Severity.NOTE)


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
