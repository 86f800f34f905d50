"""The GPU is chosen by the global rank.

## What happens

The global rank counts over all nodes: on the second node of eight GPUs it begins with 8, and there is no GPU 8.
`torch.cuda.set_device(dist.get_rank())` works on one node and ends with "invalid device ordinal" on two.

## How to be sure

Start it on two nodes. On one node the global rank is the local one, and nothing is wrong: `ddpdoctor lint` tells it
with `--confidence likely` only, where the number comes from `get_rank()` or RANK without a modulo, in a file that
neither starts processes itself nor is imported by one that does.

## How to mend it

`local_rank = int(os.environ["LOCAL_RANK"])`, which torchrun sets; or `dist.get_rank() % torch.cuda.device_count()`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: PyTorch documentation, torchrun, the environment
variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, STARTS, Ailment, Fact, Finding, Fix, Severity, keyword, lint

from ..._scripts.doubts import ONE_NODE, SEVERAL_NODES

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP223", Severity.WARNING)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a global rank that names a device."""
    if STARTS & script.all_calls().keys() or script.frameworks:
        return
    on_several = project.in_launches(SEVERAL_NODES)
    if project.others_say(r"\bspawn\(") and not on_several:
        return  # the script that imports this one starts the ranks of one node itself
    told = set()
    for node in (*script.calls("torch.cuda.set_device"), *script.calls(DDP)):
        devices = keyword(node, "device_ids")
        passed = node.args[:1] if script.resolve(node.func) != DDP else [*getattr(devices, "elts", ())]
        for each in passed:
            if script.fact(each) is Fact.RANK and script.code(each) not in told:
                told.add(script.code(each))
                yield Finding(
                    f"{script.code(each)} is the global rank, and names a GPU: a second node has none of this number",
                    (script.seen(node, 'int(os.environ["LOCAL_RANK"])'),),
                    Fix("choose the GPU by the local rank"),
                    script.place(node),
                    ambiguity=None if on_several else ONE_NODE,
                )
