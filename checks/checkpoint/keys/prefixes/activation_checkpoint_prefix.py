"""The keys of the checkpoint carry the name under which activation checkpointing holds a layer.

## What happens

`checkpoint_wrapper` and `apply_activation_checkpointing` keep a layer as the child `_checkpoint_wrapped_module` of a
wrapper. Its `state_dict()` takes that name out of the keys. The `named_parameters()` of the whole model keeps it, so
a file made by `{name: p.detach() for name, p in model.named_parameters()}` (only what is trained, say) has keys such
as `layers.0._checkpoint_wrapped_module.weight`. `load_state_dict` of the plain model finds them unexpected.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. No layer of a user's model has this name, so the answer is certain.
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` also compares the keys without the prefix with
those of the model.

## How to mend it

Choose the tensors by the keys of `state_dict()`, which are those of the plain model. To mend a file that exists,
without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

## Versions and sources

Holds for torch 1.12 and later; seen with torch 2.13 CPU. Source:
torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py.
"""

from __future__ import annotations

from ddpdoctor.check import Ailment, Severity

from ..._reason import Reason
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP804", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("_checkpoint_wrapped_module",),
        "checkpoint_wrapper",
        "torch.save(dict(model.named_parameters()), path)",
        "torch.save(model.state_dict(), path)",
        Reason.CHECKPOINTED,
    )
)
