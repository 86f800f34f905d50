"""set_epoch is called on something that is no DistributedSampler.

## What happens

`loader.sampler.set_epoch(epoch)` needs a sampler that shuffles by epoch. "'RandomSampler' object has no attribute
'set_epoch'" means more than a failing line: this loader has the plain sampler that DataLoader makes from
`shuffle=True`, so every rank trains on all of the data. On None the sampler was only made for several ranks; a
DataLoader, a BatchSampler or an iterable data set hold the sampler somewhere else, or have none.

## How to be sure

`print(type(loader.sampler), type(loader.batch_sampler))`. In a source (`ddpdoctor lint`): the loader is made without a
sampler, or with a plain one, on every way to the call.

## How to mend it

Give the loader a `DistributedSampler` and call `set_epoch` on it. Where the same script runs alone, ask first: `if
isinstance(loader.sampler, DistributedSampler)`. Accelerate's loaders have a set_epoch of their own; so have those of
Fabric and Lightning, which call it themselves.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, keyword, lint, log_pattern

from ..._scripts.source import LOADER, is_own

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP630", Severity.ERROR)
PLAIN = {"RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"}


@log_pattern(r"AttributeError: '(?P<type>\w+)' object has no attribute 'set_epoch'")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report a plain sampler, which shards nothing, or an object that is no sampler."""
    kind = match["type"]
    if kind in PLAIN:
        said, fix = f"the loader has a {kind}: each rank goes through all of the data", SHARDED
    elif kind in ("DataLoader", "BatchSampler"):
        said, fix = f"set_epoch is called on a {kind}, and belongs to the sampler in it", INNER
    elif kind == "NoneType":
        said, fix = "there is no sampler here: None", ASK
    else:
        said, fix = f"{kind} has no set_epoch", ASK
    yield Finding(said, (record.proof(match, "a DistributedSampler"),), fix, record.place)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for set_epoch of a sampler that torch's loader has made itself, or of a plain one."""
    for call in script.nodes(ast.Call) if is_own(script) else ():
        match call.func:
            case ast.Attribute(value=ast.Attribute(value=loader, attr="sampler"), attr="set_epoch"):
                made = script.made_by(loader, LOADER)
                kind = _sampler_of(script, made) if made is not None else ""
            case ast.Attribute(value=sampler, attr="set_epoch"):
                made = script.made_by(sampler, *(f"torch.utils.data.{each}" for each in PLAIN))
                kind = f"a {script.code(made.func).rpartition('.')[2]}" if made is not None else ""
            case _:
                continue
        if made is not None and kind and not _is_asked_for(script, call):
            yield Finding(
                f"set_epoch is called on {kind}, which has none: an AttributeError",
                (script.seen(call, "a DistributedSampler"), script.seen(made)),
                SHARDED,
                script.place(call),
            )


def _sampler_of(script: Script, loader: ast.Call) -> str:
    """Return what sampler a loader has, in words; empty where it has another's, or that is not seen."""
    if len(loader.args) > MOST_ARGUMENTS or any(each.arg is None for each in loader.keywords):
        return ""
    own = keyword(loader, "sampler")
    if own is not None and not (isinstance(own, ast.Constant) and own.value is None):
        made = script.made_by(own, *(f"torch.utils.data.{each}" for each in PLAIN))
        return f"a {script.code(made.func).rpartition('.')[2]}" if made is not None else ""
    if any(isinstance(each, ast.Starred) for each in loader.args) or keyword(loader, "batch_sampler") is not None:
        return ""
    return "the plain sampler that this loader makes itself"


MOST_ARGUMENTS = 3  # before the sampler


def _is_asked_for(script: Script, call: ast.Call) -> bool:
    """Whether the file asks before what it has, or catches what is raised."""
    tests = [script.code(each.test) for each in script.guards(call)]
    return any(re.search(r"sampler|hasattr|isinstance", each) for each in tests) or any(
        isinstance(each, ast.Try) and each.handlers for each in script.tree.above(call)
    )


SHARDED = Fix(
    "give each rank its share of the data",
    diff="-loader = DataLoader(dataset, batch_size=32, shuffle=True)\n+sampler = DistributedSampler(dataset)\n"
    "+loader = DataLoader(dataset, batch_size=32, sampler=sampler)\n+sampler.set_epoch(epoch)   # in each epoch",
)
INNER = Fix(
    "call it on the DistributedSampler itself",
    diff="-loader.set_epoch(epoch)\n"
    "+loader.sampler.set_epoch(epoch)   # with a batch_sampler: loader.batch_sampler.sampler",
)
ASK = Fix(
    "call it where there is a DistributedSampler",
    diff="-sampler.set_epoch(epoch)\n+if isinstance(sampler, DistributedSampler):\n+    sampler.set_epoch(epoch)",
)
