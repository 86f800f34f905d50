"""The source uses a name that torch does not have.

## What happens

`nn.DistributedDataParallel` is an AttributeError when the line is reached: the class stands in `torch.nn.parallel`.
So is a misspelt collective such as `dist.all_reduct`, or `nn.SyncBatchnorm`: names of torch are case-sensitive. A
line that only rank 0 reaches, or only the end of an epoch, fails late.

## How to be sure

`python -c 'import torch.distributed as dist; dist.NAME'`. `ddpdoctor lint` reports only names that are resolved to
torch by the imports of the file, that no torch from 2.2 to 2.13 has, and that are like one that it has. In a log, the
user's own file asks for the name; where an installed package asks, its version does not fit torch's:
framework-torch-version-skew.

## How to mend it

The name as torch has it.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: the names of torch.distributed of torch 2.13, and
`torch/nn/__init__.py`.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, closest, lint, log_pattern

from ._torch_names import DISTRIBUTED, OFFERED, PARALLEL

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Script

AILMENT = Ailment("DDP591", Severity.ERROR)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for names of torch.distributed, torch.nn and torch.nn.parallel that are not there, and are like one."""
    for node in script.nodes(ast.Attribute):
        path = script.resolve(node) or ""
        if isinstance(script.tree.parents.get(node), ast.Attribute) and path.rpartition(".")[0] != "torch.nn":
            continue  # it is the name of a module below
        if "modules" in script.code(node):
            continue  # torch.nn.modules has a module for each kind of layer
        meant = ELSEWHERE.get(path) or _meant(path)
        if meant is not None and not _is_asked_for(script, node):
            yield Finding(
                f"torch has no {path}: {meant} is meant",
                (script.seen(node, meant),),
                Fix("write the name that torch has", edits=_renamed(script, node, path, meant)),
                script.place(node),
            )


@log_pattern(r"AttributeError: module '(torch\.(?:distributed|nn|nn\.parallel))' has no attribute '(\w+)'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the name that was meant."""
    module, wrong = match[1], match[2]
    right = closest(wrong, OFFERED[module])
    if right in {"", wrong} or (record.frames and not record.frames[-1].is_users):
        return
    yield Finding(
        f"{module} has no {wrong}: it is {right}",
        (record.proof(match, f"{module}.{right}"),),
        Fix("write the name as torch does", diff=f"-{module}.{wrong}\n+{module}.{right}"),
        record.place,
    )


def _renamed(script: Script, node: ast.Attribute, path: str, meant: str) -> tuple[Edit, ...]:
    """Return the edit of a name whose right one stands in the same module, or below it."""
    base = path.rpartition(".")[0]
    if not meant.startswith(f"{base}.") or path != f"{base}.{node.attr}":
        return ()
    return (script.replaced(node, f"{script.code(node.value)}.{meant.removeprefix(f'{base}.')}"),)


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
    if base == "torch.nn":
        slip = closest(name, OFFERED[base])
        return f"{base}.{slip}" if slip and slip != name else None
    known = {"torch.distributed": DISTRIBUTED, "torch.nn.parallel": PARALLEL}.get(base)
    if known is None or name in known or name.startswith("_") or "Backend" in name:
        return None
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.86)
    return f"{base}.{close[0]}" if close else None


def _is_asked_for(script: Script, node: ast.Attribute) -> bool:
    """Whether the file tests for a version, or catches what is raised."""
    return any(
        (isinstance(each, ast.Try) and each.handlers)
        or (isinstance(each, ast.If) and "version" in ast.unparse(each.test).lower())
        for each in script.tree.above(node)
    ) or any(_asks(each, node.attr) for each in script.nodes(ast.Call))


def _asks(call: ast.Call, name: str) -> bool:
    """Whether a call asks whether there is such a name, which it can ask of another object as well."""
    match call:
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=str(asked))]):
            return asked == name
        case ast.Call(func=ast.Name(id="hasattr")):
            return True
    return False
