"""One rank alone loads a checkpoint into a model that is wrapped already.

## What happens

DDP gives all ranks the weights of rank 0 once, when it wraps the model. What rank 0 loads afterwards, it has alone:
the others go on with the weights that they had. Gradients are averaged all the same, so nothing fails, and what is
trained is neither model. What the checkpoint says besides (the epoch, the best metric) is missing on the other ranks,
too.

## How to be sure

Compare a weight of two ranks after the load. Reported in a source where the load stands behind a test that one rank
alone passes, the model was wrapped before, and nothing in reach broadcasts.

## How to mend it

Load on all ranks, with `map_location="cpu"`; or load on rank 0 before the model is wrapped.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py, `_sync_module_states`
in the constructor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import OTHER_RANKS, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP856", Severity.ERROR)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for load_state_dict of a wrapped model, behind a test that one rank alone passes."""
    if script.frameworks:
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=model, attr="load_state_dict")):
                bare = model.value if isinstance(model, ast.Attribute) and model.attr == "module" else model
                guard = script.one_rank_guard(call)
                wrap = script.wrap(bare) if guard is not None else None
                if guard is None or wrap is None or not wrap.sure or wrap.kind != "DistributedDataParallel":
                    continue
                if not _others_load(script, call) and not project.says(SHARED):
                    yield Finding(
                        f"one rank alone loads {script.code(bare)}, which was wrapped in line {wrap.line}: the others "
                        "keep their weights",
                        (script.seen(call, "on all ranks, or before the model is wrapped"), script.seen(guard.test)),
                        Fix("load on all ranks, onto the CPU first", diff=MEND),
                        script.place(call),
                    )


SHARED = r"broadcast|sync_module_states|_sync_params|scatter"
MEND = '+state = torch.load(path, map_location="cpu")  # on all ranks\n+model.module.load_state_dict(state)'


def _others_load(script: Script, call: ast.Call) -> bool:
    code = script.code(call.func)
    same = [each for each in script.nodes(ast.Call) if each is not call and script.code(each.func) == code]
    return any(guard.who(script.tree) == OTHER_RANKS for each in same for guard in script.guards(each))
