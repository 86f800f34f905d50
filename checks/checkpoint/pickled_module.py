"""The checkpoint is a whole pickled module, not a state dict.

`torch.save(model)` pickles the model with the names of its classes. torch.load then imports these classes from where
they were when it was saved: after a move or a rename of the code it raises "ModuleNotFoundError" or "Can't get
attribute", and attributes that newer code sets in `__init__` are not there. A model that was saved inside DDP takes
DDP and its process group along. Since torch 2.6, torch.load refuses such a file unless weights_only=False is passed,
which runs whatever the pickle says.

To be sure, `ddpdoctor inspect last.pt` names the class without importing anything.

Save `model.state_dict()`. Turn an existing file into one where the code of the model is still importable, and where
you trust who wrote it: weights_only=False runs code from the file.

Holds for every torch; weights_only became True by default in 2.6. Seen with torch 2.13 CPU. Source: PyTorch
documentation, "Saving and Loading Models".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.checkpoint import CheckpointFile, subscript

from ._look import beside, few, pasted, quoted, whole

CARD = Card("DDP810", Severity.WARNING)
WRAPPERS = {"DataParallel", "DistributedDataParallel"}
PLAIN = ("torch._utils.", "collections.", "builtins.")


@probe
def in_the_file(checkpoint: CheckpointFile) -> Iterator[Finding]:
    """Name the class of each pickled module."""
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
    """Give the classes of modules, the user's own first."""
    kinds = [name for name in checkpoint.globals if not name.startswith(PLAIN) and not name.endswith("Storage")]
    return sorted(kinds, key=lambda name: name.startswith("torch."))
