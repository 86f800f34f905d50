"""init_process_group is given a backend, or a port, that there is not.

## What happens

A backend by a misspelt name, or the `tcp` of torch before 1.0, ends every rank with "Unknown backend type ncll"; a
`MASTER_PORT` above 65535 with "port must have value from 0 to 65535". Both happen on all machines, before anything
else.

## How to be sure

Start one rank: it ends at once. Reported where the literal stands in the source.

## How to mend it

`nccl` for CUDA GPUs, `gloo` for processors; a port between 1024 and 65535.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py, `Backend`;
torch/distributed/rendezvous.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Finding, Fix, Severity, given, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP484", Severity.ERROR)
SLIPS = {
    "nccl": frozenset("ncll nlcc nlccl nncl ncl ncc nccll ncccl nvcl nlc nvccl cuda gpu".split()),
    "gloo": frozenset("tcp goo glo golo gllo glooo gooo glloo goolo".split()),
}
"""Backends, and how they were misspelt; tcp is the one of torch before 1.0."""
LAST_PORT = 65535


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for literal backends that there are not, and for literal ports that are too large."""
    for call in script.calls(INIT):
        named = given(call, 0, "backend")
        value = script.value(named) if named is not None else None
        right = _meant(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        if right and named is not None and "register_backend" not in script.text:
            edits = (script.replaced(named, f'"{right}"'),) if isinstance(named, ast.Constant) else ()
            yield Finding(
                f"torch has no backend {ast.unparse(value or named)}: {right} is meant",
                (script.seen(named, f'"{right}"'),),
                Fix("name the backend as torch does", edits=edits),
                script.place(named),
            )
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=where, slice=ast.Constant(value="MASTER_PORT"))]):
                port = _port(script.value(node.value))
                if port > LAST_PORT and script.resolve(where) == "os.environ":
                    yield Finding(
                        f"MASTER_PORT is {port}, and ports end at {LAST_PORT}: a ValueError",
                        (script.seen(node, "a port between 1024 and 65535"),),
                        Fix("choose a port that there is", edits=(script.replaced(node.value, '"29500"'),)),
                        script.place(node),
                    )


def _port(node: ast.expr) -> int:
    """Return the port that a literal text says; 0 for anything else."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return int(text) if text.isdecimal() else 0


def _meant(name: str) -> str:
    """Return the backend that a misspelt name means: by a list, since hccl, cncl and ccl are of other vendors."""
    low = name.strip().lower()
    return next((right for right, wrong in SLIPS.items() if low in wrong), "")
