"""The keys of the checkpoint carry the names under which FSDP holds the modules that it wraps.

FullyShardedDataParallel (FSDP1) keeps a wrapped module as its child `_fsdp_wrapped_module` (`_fpw_module` before torch
1.13). Its `state_dict()` takes that name out of the keys, but `dict(model.named_parameters())` of a model with wrapped
layers keeps it: `layers.0._fsdp_wrapped_module.weight`. Loaded into a plain model, these keys are missing on one side
and unexpected on the other.

To be sure, `ddpdoctor inspect last.pt` names the prefix. Nobody calls a layer of theirs so, so it is certain.

Save the full state dict, whose keys are those of the plain model:
`torch.distributed.checkpoint.state_dict.get_model_state_dict` with `StateDictOptions(full_state_dict=True,
cpu_offload=True)`, called on all ranks, saved by rank 0. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

Holds for FSDP1 of every torch; `get_model_state_dict` exists since 2.2. FSDP2 (`fully_shard`) changes no key. Seen
with torch 2.13 CPU. Source: PyTorch documentation, "torch.distributed.checkpoint".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Finding, Severity
from ddpdoctor.check import probe

from ._wrappers import Wrapper, from_file, from_model

if TYPE_CHECKING:
    from ddpdoctor.checkpoint import CheckpointFile
    from ddpdoctor.probe.model_exam import ModelExam

CARD = Card("DDP803", Severity.ERROR)
WRAPPER = Wrapper(
    ("_fsdp_wrapped_module", "_fpw_module"),
    "FullyShardedDataParallel",
    "torch.save(dict(model.named_parameters()), path)",
    "full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
    "+ if torch.distributed.get_rank() == 0:\n+     torch.save(full, path)",
)


@probe
def alone(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001
    """Look at the keys by themselves."""
    if not model_given:
        yield from from_file(checkpoint, WRAPPER)


@probe
def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
    """Compare with the keys of the model."""
    yield from from_model(checkpoint, model, WRAPPER)
