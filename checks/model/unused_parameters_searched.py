"""DDP searches the graph for unused parameters in every step.

## What happens

With `find_unused_parameters=True` DDP walks through the graph after each forward. Where every parameter gets a
gradient, that is time for nothing: torch warns "find_unused_parameters=True was specified in DDP constructor, but did
not find any unused parameters in the forward pass". Models that skip layers need it, so this is a note.

## How to be sure

`ddpdoctor check --model` names the parameters that get no gradient. In a source (`ddpdoctor lint`): the option is
literally True, and no comment beside it says why.

## How to mend it

Leave it out, and see whether the training raises "Expected to have finished reduction". Where the same parameters are
unused in every step, `static_graph=True` finds them once.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, DistributedDataParallel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, Ailment, Finding, Fix, Severity, keyword, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP550", Severity.NOTE)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for the option where nobody says why."""
    for call in script.calls(DDP):
        option = keyword(call, "find_unused_parameters")
        if not isinstance(option, ast.Constant) or option.value is not True or _is_explained(script, option):
            continue
        yield Finding(
            "DDP searches the graph for unused parameters in every step",
            (script.seen(option, "only where a model skips layers"),),
            Fix("leave it out where every parameter gets a gradient; else static_graph=True"),
            script.place(call),
        )


def _is_explained(script: Script, option: ast.expr) -> bool:
    """Whether a comment stands on the option's line, or on the one above it."""
    return any("#" in line for line in script.lines[max(0, option.lineno - 2) : option.lineno])
