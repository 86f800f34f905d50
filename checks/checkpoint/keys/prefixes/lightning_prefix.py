"""The keys of the checkpoint carry _forward_module., the name under which Lightning's strategies hold the model.

## What happens

Lightning puts the user's module into a wrapper of its own before it hands it to DDP, FSDP or DeepSpeed, as the child
`_forward_module`. What is saved from inside a strategy, such as the shards of DeepSpeed ZeRO put together by
`zero_to_fp32.py`, has `_forward_module.` before every key, and `load_state_dict` of the module finds all of them
unexpected.

## How to be sure

`ddpdoctor inspect last.pt` names the prefix. A layer of your own can be called `_forward_module`, too. With
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` the model's own keys decide; without a model,
ddpdoctor prints that it assumes there is none.

## How to mend it

Save with `trainer.save_checkpoint(path)`, and put ZeRO shards together with
`lightning.pytorch.utilities.deepspeed.convert_zero_checkpoint_to_fp32_state_dict`, which takes the prefix off. To
mend a file that exists, without loading it:

    ddpdoctor repair last.pt -o last.bare.pt
    ddpdoctor repair last.pt --in-place          # ddpdoctor repair last.pt --undo takes it back

## Versions and sources

Holds for PyTorch Lightning and Fabric with all versions of torch. Source: Lightning's own wrappers
(`_LightningModuleWrapperBase`, `_FabricModule`). Seen with a wrapper of the same shape, torch 2.13 CPU.
"""

from __future__ import annotations

from ddpdoctor.check import Ailment, Severity

from ..._reason import Reason
from ._wrappers import Wrapper, facets

AILMENT = Ailment("DDP813", Severity.ERROR)
ALONE, BESIDE_THE_MODEL, IN_LOGS = facets(
    Wrapper(
        ("_forward_module",),
        "a strategy of Lightning",
        "torch.save(wrapper.state_dict(), path)",
        "torch.save(wrapper._forward_module.state_dict(), path)",
        Reason.FORWARD,
        ", assuming that no layer of the model itself is called _forward_module",
    )
)
