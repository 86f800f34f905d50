"""The script uses a name of torch.distributed that torch has removed, or keeps for old scripts only.

## What happens

The functions for several GPUs of one process (`all_reduce_multigpu` and four more) and the module
`torch.distributed.deprecated` are gone: the line ends with an AttributeError. `DistributedDataParallelCPU` is still
there under that name, and is DistributedDataParallel. `torch.distributed.reduce_op` still works, with a FutureWarning
in each rank; it is `ReduceOp` now.

## How to be sure

`python -c "import torch.distributed as dist; dist.all_reduce_multigpu"` on the host that trains. ddpdoctor reports a
name that is resolved to torch by the imports of the file, and that no test of a version and no `hasattr` is about.

## How to mend it

One process for each GPU, and the function without `_multigpu`. `ReduceOp` for `reduce_op`, DistributedDataParallel for
`DistributedDataParallelCPU`: `ddpdoctor lint --fix` writes them.

## Versions and sources

Looked up in torch 2.6, 2.10 and 2.13. Source: torch's torch/distributed/distributed_c10d.py and
torch/nn/parallel/__init__.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP762", Severity.ERROR)
REMOVED = frozenset(
    f"torch.distributed.{name}"
    for name in (
        "deprecated all_reduce_multigpu broadcast_multigpu all_gather_multigpu reduce_multigpu reduce_scatter_multigpu"
    ).split()
)
RENAMED = {
    "torch.distributed.reduce_op": ("ReduceOp", Severity.NOTE),
    "torch.nn.parallel.DistributedDataParallelCPU": ("DistributedDataParallel", Severity.WARNING),
}


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the names where they are read of their module, and where they are imported."""
    for node in script.nodes(ast.Attribute):
        path = script.resolve(node) or ""
        if path not in REMOVED and path not in RENAMED:
            continue
        if _is_asked_for(script, node) or not isinstance(node.ctx, ast.Load):
            continue
        if path in REMOVED:
            if project.is_made_for_torch_before("2.6"):
                continue
            right = path.removesuffix("_multigpu") if path.endswith("_multigpu") else "torch.distributed"
            yield Finding(
                f"torch has removed {path}: the line ends with an AttributeError",
                (script.seen(node, f"{right}, in one process for each GPU"),),
                Fix("start one process for each GPU, and use the function without _multigpu"),
                script.place(node),
            )
        else:
            name, severity = RENAMED[path]
            right = f"{script.code(node.value)}.{name}"
            yield Finding(
                f"{path} is kept for old scripts: it is {name}",
                (script.seen(node, right),),
                Fix(f"write {name}", edits=(script.replaced(node, right),)),
                script.place(node),
                severity=severity,
            )


def _is_asked_for(script: Script, node: ast.AST) -> bool:
    """Whether the file tests for a version, or catches what is raised."""
    tests = (each.test for each in script.tree.above(node) if isinstance(each, (ast.If, ast.IfExp)))
    is_tried = any(isinstance(each, ast.Try) and each.handlers for each in script.tree.above(node))
    return is_tried or "hasattr" in script.text or any("version" in ast.unparse(each).lower() for each in tests)
