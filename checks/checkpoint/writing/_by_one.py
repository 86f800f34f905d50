"""How a checkpoint that several ranks write is to be written: by one of them, or each part to a file of its own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import HOROVOD, Fix, tree_of

from .._whole import WHOLE
from ._shared_path import diff_guarded, on_one_rank

if TYPE_CHECKING:
    from ddpdoctor.check import FileWritten, Script, Training, Tree

BY_ONE = Fix(
    "let rank 0 write, beside the final name, and the others wait",
    diff="-torch.save(state, path)\n+if torch.distributed.get_rank() == 0:\n"
    '+    torch.save(state, f"{path}.tmp")\n+    os.replace(f"{path}.tmp", path)\n'
    "+torch.distributed.barrier()",
)
WITH_HOROVOD = Fix(
    BY_ONE.summary,
    diff=BY_ONE.diff.replace("torch.distributed.get_rank()", "hvd.rank()").replace("torch.distributed.", "hvd."),
)
OF_STAGES = Fix(
    "give each stage a file of its own: the ranks hold different parts of the model",
    diff='-torch.save(stage.state_dict(), "model.pt")\n'
    '+torch.save(stage.state_dict(), f"model_stage{torch.distributed.get_rank()}.pt")',
)
PIPELINING = "torch.distributed.pipelining"


def fix_of(event: FileWritten, training: Training) -> Fix:
    """Return how the file of a training is to be written."""
    if event.shards:
        return WHOLE
    if event.site is not None and _has_stages(tree_of(event.site.file)):
        return OF_STAGES
    return WITH_HOROVOD if training.framework is HOROVOD else BY_ONE


def fix_in(script: Script, call: ast.Call, *, by_horovod: bool) -> Fix:
    """Return how the file that a line of a source writes is to be written."""
    if _has_stages(script.tree):
        return OF_STAGES
    if by_horovod:
        return WITH_HOROVOD
    return Fix("save on one rank, and let the others wait before they read it", diff=diff_guarded(script, call))


def right_in(script: Script) -> str:
    """Return what is right at a line of a source that every rank writes."""
    return "a path of its own on each rank" if _has_stages(script.tree) else on_one_rank(script)


def _has_stages(tree: Tree) -> bool:
    """Whether a file splits the model into the stages of a pipeline, of which each rank has its own."""
    taken = [each.module or "" for each in tree.of(ast.ImportFrom)]
    taken += [name.name for each in tree.of(ast.Import) for name in each.names]
    return any(each == PIPELINING or each.startswith(f"{PIPELINING}.") for each in taken)
