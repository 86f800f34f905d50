"""DataParallel cannot put together what the replicas return.

## What happens

DataParallel gathers the outputs of all replicas on one GPU: tensors are joined along their first dimension, and
tuples, lists and dicts of tensors one by one. A Python number or string in the output ("'float' object is not
iterable"), tensors on the CPU, or shapes that differ beside the first dimension ("Gather got an input of invalid
size", as padding to the longest sequence of each replica makes) cannot be joined.

## How to be sure

The traceback passes through `torch/nn/parallel/scatter_gather.py`. Print type, device and shape of what forward
returns.

## How to mend it

Return tensors on the replica's device, with the batch as first dimension: a loss as `loss.unsqueeze(0)`; pad to one
length before the batch is split. DDP gathers nothing and has none of these limits.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/nn/parallel/scatter_gather.py, `gather`; torch/nn/parallel/_functions.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP585", Severity.ERROR)

GATHERS = r"scatter_gather\.py|data_parallel\.py|parallel[/\\]_functions\.py|cuda[/\\]comm\.py"


@log_pattern(
    r"[Gg]ather got an input of invalid size: got (?P<got>\[[\d, ]*\]|[\dx]+), but "
    r"expected (?P<want>\[[\d, ]*\]|[\dx]+)"
    r"|Input tensor at index \d+ has invalid shape (?P<shape>\[[\d, ]*\]), but expected (?P<should>\[[\d, ]*\])"
    r"|(?P<keys>All dicts must have the same number of keys)"
    r"|(?:Error: )Gather function not implemented for CPU tensors"
    r"|TypeError: (?:'(?P<type>\w+)' object is not iterable|zip argument #1 must support iteration)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what could not be joined, where DataParallel was joining."""
    if not re.search(GATHERS, record.text):
        return
    got, want = match["got"] or match["shape"], match["want"] or match["should"]
    if got:
        said = f"the replicas return tensors of {got} and {want}: only the first number can differ"
    elif match["keys"]:
        said = "the replicas return dictionaries with different keys"
    elif "CPU" in match[0]:
        said = "the replicas return tensors on the CPU"
    else:
        said = f"the replicas return a {match['type']}" if match["type"] else "the replicas return what is no tensor"
    yield Finding(
        f"DataParallel cannot gather the outputs: {said}",
        (record.proof(match, "tensors on the GPU, of one shape beside the first dimension"),),
        Fix(
            "return tensors with the batch first, a loss as a tensor of one element; or train with DDP",
            diff="-return loss.item(), out.cpu()\n+return loss.unsqueeze(0), out",
        ),
        record.place,
    )
