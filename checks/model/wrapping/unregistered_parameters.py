"""The loss depends on parameters that the model does not list.

## What happens

Modules and parameters in a plain list, tuple or dict are not found by `model.parameters()`, nor is a tensor with
`requires_grad=True` that is no `nn.Parameter`. DDP neither gives all ranks the same start values nor averages their
gradients; `model.to(device)` and the state dict leave them out as well. If the optimizer got them from elsewhere, every
rank trains its own copy and only rank 0's is saved; if not, they stay at random values. Nothing is raised.

## How to be sure

ddpdoctor walks the graph of a step's loss to its leaves and names each `nn.Parameter`, and each tensor of the model's
own, that `model.parameters()` does not have. An input that the model keeps is none.

## How to mend it

`nn.ModuleList`, `nn.ModuleDict`, `nn.ParameterList`; `nn.Parameter(tensor)` for a tensor. A frozen network that is
hidden on purpose (a perceptual loss) should be frozen, `requires_grad_(False)`: then it is no longer reported, and
backward is cheaper.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Severity, probe

from .._words import counted, listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP520", Severity.WARNING)


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Yield the name of the parameters that DDP does not see."""
    hidden = model.steps.alone()[0].unregistered
    if hidden:
        yield Finding(
            f"{counted(len(hidden), 'parameter')} that the loss of {model.model.kind} depends on, DDP does not see: "
            + listed(hidden),
            (Evidence(f"{listed(hidden)} not among model.parameters()", "every parameter of the loss", "rank 0"),),
            Fix(
                "register them",
                diff="-self.layers = [nn.Linear(8, 8), nn.Linear(8, 8)]\n"
                "+self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])\n"
                "or\n-self.scale = torch.ones(8, requires_grad=True)\n+self.scale = nn.Parameter(torch.ones(8))",
            ),
            ambiguity=Ambiguity(
                (
                    "they are to be trained, and a plain list hides them",
                    "a network hidden on purpose that is not frozen",
                ),
                f"grep -nE '= *(\\[|\\{{|\\()' {model.source.file or model.target.module}",
            ),
        )
