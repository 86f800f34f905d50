"""The hosts have different versions of Python, torch, CUDA or NCCL.

## What happens

Two hosts were installed at different times, or run different containers. Ranks of different torch or NCCL versions do
not always understand each other: NCCL refuses ("mismatched versions"), gloo hangs, a pickled object of one is not known
to the other, and results differ in the last digits.

## How to be sure

`python -c "import torch; print(torch.__version__, torch.version.cuda)"` on each host. `ddpdoctor check` on all hosts
compares them, without importing torch.

## How to mend it

Install the same on all hosts: one container image, or one file of pinned versions.

## Versions and sources

Holds for all versions. Source: NCCL's src/init.cc ("mismatched versions").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Place, Severity, probe

from ._differ import differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host


AILMENT = Ailment("DDP102", Severity.WARNING)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each version; only among hosts that have it: no torch at all is told by the host itself."""
    for each in differences(cluster.hosts, lambda host: host.versions, _value):
        yield Finding(
            each.message,
            each.evidence(" is "),
            Fix(
                f"install the same {each.name} on all hosts",
                command=f"pip install '{each.name}=={each.usual}'   # on {each.odd.name}"
                if each.name == "torch"
                else f"pip freeze   # on {each.odd.name} and on {each.same.name}",
            ),
            Place(host=each.odd.name),
            severity=Severity.ERROR if each.name in ("torch", "NCCL", "CUDA of torch") else None,
        )


def _value(name: str, host: Host) -> str | None:
    return host.versions.get(name)
