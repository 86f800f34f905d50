"""The checkpoint is a whole pickled module, not a state dict.

## What happens

`torch.save(model)` pickles the model with the names of its classes. torch.load then imports these classes from where
they were when it was saved. After a move or a rename of the code it raises "ModuleNotFoundError" or "Can't get
attribute", and attributes that newer code sets in `__init__` are not there. A model that was saved inside DDP
includes DDP, which asks for a process group as it is loaded: without one, as in an evaluation, that is a ValueError,
"Default process group has not been initialized". Since torch 2.6, torch.load refuses such a file unless
weights_only=False is passed, which runs whatever the pickle says.

## How to be sure

`ddpdoctor inspect last.pt` names the class, and what the pickle imports, without importing anything.

In a source (`ddpdoctor lint`): `torch.save` is given the wrapper itself, in a file that loads nothing.

## How to mend it

Save `model.state_dict()`, or `model.module.state_dict()` of a wrapped model. An existing file can be turned into a
state dict where the code of the model is still importable: load it with `weights_only=False` and save the state dict,
with the command of the finding. Do so only where you trust who wrote the file, since weights_only=False runs code
from it.

## Versions and sources

Holds for all versions of torch; weights_only became True by default in 2.6. Seen with torch 2.13 CPU. Source: PyTorch
documentation, "Saving and Loading Models".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, CheckpointFile, Evidence, Finding, Fix, Place, Severity, lint, probe, subscript

from .._look import beside, few, pasted, quoted, whole

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP810", Severity.WARNING)
WRAPPERS = {"DataParallel", "DistributedDataParallel"}
PLAIN = ("torch._utils.", "collections.", "builtins.")


@probe
def in_the_file(checkpoint: CheckpointFile) -> Iterator[Finding]:
    """Yield the name of the class of each pickled module."""
    for module in whole(checkpoint).modules[:1]:
        place = subscript("ckpt", module.location)
        new = beside(checkpoint.path, "state")
        inner = ".module" if module.kind.rpartition(".")[2] in WRAPPERS else ""
        lines = [
            "import torch",
            f'ckpt = torch.load({quoted(checkpoint.path)}, map_location="cpu", weights_only=False)',
            f"torch.save({place}{inner}.state_dict(), {quoted(new)})",
        ]
        yield Finding(
            f"{place if module.location else 'the file'} is a pickled {module.kind}, not a state dict",
            (
                Evidence(
                    f"its pickle imports {few(_classes(checkpoint), 5)}",
                    "tensors and their names only",
                    checkpoint.path,
                ),
            ),
            Fix(
                f"save the state dict; where the code of the model is at hand and the file is trusted, write {new}",
                pasted(lines),
                "- torch.save(model, path)\n+ torch.save(model.state_dict(), path)",
            ),
            place=Place(file=checkpoint.path),
        )


def _classes(checkpoint: CheckpointFile) -> list[str]:
    """Return the classes of modules, the user's own first."""
    kinds = [name for name in checkpoint.globals if not name.startswith(PLAIN) and not name.endswith("Storage")]
    return sorted(kinds, key=lambda name: name.startswith("torch."))


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for DistributedDataParallel itself that is saved, in a file that loads nothing back while it has a group."""
    if "torch.load" in script.text:
        return
    for call in script.calls("torch.save"):
        model = call.args[0] if call.args else None
        wrap = script.wrap(model) if model is not None else None
        if model is None or wrap is None or not wrap.in_ranks or wrap.kind != "DistributedDataParallel":
            continue
        name = script.code(model)
        yield Finding(
            f"{name} is saved with the {wrap.kind} around it: where it is loaded without a process group, that is a "
            "ValueError",
            (script.seen(call, f"torch.save({name}.module.state_dict(), ...)"), script.seen(wrap.call)),
            Fix(
                "save the state dict of the model itself, and load it into a model that is built anew",
                diff=f"-{script.code(call)}\n+{script.code(call.func)}({name}.module.state_dict(), ...)",
            ),
            script.place(call),
        )
