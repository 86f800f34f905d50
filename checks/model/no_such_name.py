"""The source uses a name that torch does not have.

## What happens

`nn.DistributedDataParallel` is an AttributeError when the line is reached: the class stands in `torch.nn.parallel`.
So is a misspelt collective such as `dist.all_reduct`. A line that only rank 0 reaches, or only the end of an epoch,
fails late.

## How to be sure

`python -c 'import torch.distributed as dist; dist.NAME'`. Reported only for names that are resolved to torch by the
imports of the file, that no torch from 2.2 to 2.13 has, and that are like one that it has.

## How to mend it

The name as torch has it.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: the names of torch.distributed of torch 2.13, and
`torch/nn/__init__.py`.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ._torch_names import DISTRIBUTED, PARALLEL

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP591", Severity.ERROR)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for names of torch.distributed, torch.nn and torch.nn.parallel that are not there, and are like one."""
    for node in script.tree.nodes:
        if not isinstance(node, ast.Attribute) or isinstance(script.tree.parents.get(node), ast.Attribute):
            continue
        path = script.resolve(node) or ""
        meant = ELSEWHERE.get(path) or _meant(path)
        if meant is not None and not _is_asked_for(script, node):
            yield Finding(
                f"torch has no {path}: {meant} is meant",
                (script.seen(node, meant),),
                Fix("write the name that torch has"),
                script.place(node),
            )


ELSEWHERE = {
    "torch.nn.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.DataParalle": "torch.nn.DataParallel",
    "torch.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.utils.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.nn.parallel.DistributedSampler": "torch.utils.data.DistributedSampler",
}


def _meant(path: str) -> str | None:
    base, _, name = path.rpartition(".")
    known = {"torch.distributed": DISTRIBUTED, "torch.nn.parallel": PARALLEL}.get(base)
    if known is None or name in known or name.startswith("_") or "Backend" in name:
        return None
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.86)
    return f"{base}.{close[0]}" if close else None


def _is_asked_for(script: Script, node: ast.AST) -> bool:
    """Whether the file tests for a version, or catches what is raised."""
    return (
        any(
            (isinstance(each, ast.Try) and each.handlers)
            or (isinstance(each, ast.If) and "version" in ast.unparse(each.test))
            for each in script.tree.above(node)
        )
        or "hasattr" in script.text
    )
