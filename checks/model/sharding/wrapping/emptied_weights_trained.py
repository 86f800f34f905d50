"""A model from the meta device is given memory, and no values: it is trained from whatever lay there.

## What happens

`model.to_empty(device=...)` gives the parameters of a model that was built under `torch.device("meta")` their memory,
and leaves in it what was there. Values have to follow: `reset_parameters()` of each layer, an `init_weights()` of the
model's own, or a checkpoint. Without them the training begins with zeros, with numbers of another program, or with NaN,
other ones on each rank: a loss that is NaN in the first step, or one that does not fall. Nothing is raised.

## How to be sure

Print `model.layers[0].weight` behind `to_empty`. In a source (`ddpdoctor lint`, and of what trained at the end of
`ddpdoctor run`): nothing in the file can give the weights values, by the names of what it calls, or is given the model.

## How to mend it

    model.to_empty(device=device)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()

Behind `fully_shard`, each rank then draws the values of its own part; or load a whole checkpoint on rank 0 with
`set_model_state_dict(..., options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))`.

## Versions and sources

Seen with torch 2.13 CPU. Source: PyTorch documentation, torch.nn.Module.to_empty; "Getting Started with Fully Sharded
Data Parallel (FSDP2)". Holds for torch 2.2 and later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ...._scripts.emptied import emptied

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1587", Severity.ERROR)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for ``to_empty`` in a file that trains, and that nowhere gives weights values."""
    call = emptied(script.tree) if "to_empty" in script.text else None
    if call is not None:
        model = script.code(call.func).removesuffix(".to_empty")
        yield Finding(
            f"{script.code(call.func)} gives the weights memory, and nothing gives them values",
            (script.seen(call, "reset_parameters(), or a checkpoint, behind it"),),
            Fix(
                "initialise the weights, or load them",
                diff=f" {script.code(call)}\n+for module in {model}.modules():\n"
                '+    if hasattr(module, "reset_parameters"):\n+        module.reset_parameters()',
            ),
            script.place(call),
        )
