"""The keys of the checkpoint carry the name under which activation checkpointing holds a layer.

`checkpoint_wrapper` and `apply_activation_checkpointing` keep a layer as the child `_checkpoint_wrapped_module` of a
wrapper. Its `state_dict()` takes that name out of the keys, but the `named_parameters()` of the whole model keeps it,
so that a file made by `{name: p.detach() for name, p in model.named_parameters()}` (only what is trained, say) has
keys such as `layers.0._checkpoint_wrapped_module.weight`. `load_state_dict` of the plain model finds them unexpected.

To be sure, `ddpdoctor inspect last.pt` names the prefix. Nobody calls a layer of theirs so, so it is certain.

Choose the tensors by the keys of `state_dict()`, which are those of the plain model. To mend a file that exists,
without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

Holds for torch 1.12 and later; seen with torch 2.13 CPU. Source:
torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Finding, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Log, Record

from ._reason import Reason
from ._refusal import PARTS, REFUSED
from ._wrappers import Wrapper, from_file, from_log, from_model

if TYPE_CHECKING:
    from ddpdoctor.checkpoint import CheckpointFile
    from ddpdoctor.probe.model_exam import ModelExam

CARD = Card("DDP804", Severity.ERROR)
WRAPPER = Wrapper(
    ("_checkpoint_wrapped_module",),
    "checkpoint_wrapper",
    "torch.save(dict(model.named_parameters()), path)",
    "torch.save(model.state_dict(), path)",
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


@sign(REFUSED, beside=PARTS)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare what load_state_dict found missing with what it found unexpected."""
    yield from from_log(record, match, log, WRAPPER, Reason.CHECKPOINTED)
