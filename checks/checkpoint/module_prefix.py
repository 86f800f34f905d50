"""The keys of the checkpoint begin with module., the name under which DP and DDP hold the model.

DataParallel and DistributedDataParallel keep the model as their child `module`, so the `state_dict()` of the wrapper
has `module.` before every key. Loaded into the bare model it raises "Missing key(s) in state_dict: "conv1.weight" ...
Unexpected key(s) in state_dict: "module.conv1.weight""; with `strict=False` it raises nothing and loads nothing. The
reverse, bare keys into a wrapped model, fails the same way.

To be sure, `ddpdoctor inspect last.pt` names the prefix. A layer of your own may be called `module`: with `--model`,
the model's own keys decide; without, the assumption is printed.

Save the bare model, `model.module.state_dict()`. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back
    ddpdoctor repair bare.pt --to ddp -o ddp.pt   # the other way

In a script, `ddpdoctor.load_state_dict(model, "last.pt")` loads either kind into either kind of model. A dict
comprehension that renames loses `_metadata`, and with it the versions of the layers; torch's own
`consume_prefix_in_state_dict_if_present` renames that, too, but overwrites in silence when both names exist.

Holds for every torch. Seen with torch 2.13 CPU. Source: PyTorch documentation, "Saving and Loading Models", and the
docstring of that function.
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

CARD = Card("DDP801", Severity.ERROR)
WRAPPER = Wrapper(
    ("module",),
    "DataParallel or DistributedDataParallel",
    "torch.save(model.state_dict(), path)",
    "torch.save(model.module.state_dict(), path)",
    ", assuming that no layer of the model itself is called module",
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
