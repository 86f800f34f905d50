"""The keys of the checkpoint carry _module., the name under which Opacus holds the model.

## What happens

`PrivacyEngine.make_private` puts the model into a GradSampleModule, which computes the gradients of each sample, as the
child `_module`. What is saved from the model that it returns has `_module.` before every key, and `load_state_dict` of
the bare model finds all of them unexpected; under DDP (DPDDP) `module._module.`.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. A layer of your own can be called `_module`, too. With
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` the model's own keys decide; without a model,
ddpdoctor prints that it assumes there is none.

## How to mend it

Save what is inside: `model._module.state_dict()`, or `privacy_engine.save_checkpoint(path=..., module=model)` and its
`load_checkpoint`. To mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

## Versions and sources

Holds for Opacus 1.0 to 1.5 with all versions of torch. Source: Opacus, opacus/grad_sample/gsm_base.py. Seen with a
wrapper of the same shape, torch 2.13 CPU.
"""

from __future__ import annotations

from ddpdoctor.check import Ailment, Severity

from ..._reason import Reason
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP869", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("_module",),
        "Opacus (GradSampleModule)",
        "torch.save(model.state_dict(), path)",
        "torch.save(model._module.state_dict(), path)",
        Reason.PRIVATE,
        ", assuming that no layer of the model itself is called _module",
    )
)
