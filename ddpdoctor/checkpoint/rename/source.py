"""Sees whether a checkpoint has names that can be changed, and which names another one, or a model, has."""

from __future__ import annotations

import os
from typing import Any, Union

from ddpdoctor.checkpoint.contents import CheckpointFile, Format, StateDict
from ddpdoctor.checkpoint.reader import Opened, opened
from ddpdoctor.checkpoint.rename.plan import described
from ddpdoctor.facets import BadTarget

Where = Union[str, "os.PathLike[str]"]
PART = "part"
CLOSED = {
    Format.TORCHSCRIPT: "a TorchScript archive has its names in compiled code: load it, and save the state dict of it",
    Format.EXPORT: "a torch.export archive has its names in a compiled graph: export the model again",
    Format.PICKLE: "a plain pickle, not written by torch.save, has no state dict that torch.load would find: read "
    "it by pickle, and torch.save its state dict",
}


def usable(source: Opened) -> Opened:
    """Return the checkpoint, if its names can be changed.

    Raises:
        BadTarget: it is damaged, is no checkpoint, or has no state dict.
    """
    file = source.file
    if file.damage:
        raise BadTarget(f"{file.path} is broken: {file.damage}{'; --undo mends it' if file.half_done else ''}")
    if file.opaque:
        raise BadTarget(f"{file.path} cannot be changed: {file.opaque}")
    if not file.format.loads or file.format in CLOSED:
        label = CLOSED.get(file.format) or f"{file.format.value}{': ' + file.label if file.label else ''}"
        raise BadTarget(f"{file.path} cannot be repaired: {label}")
    if file.format is Format.FOLDER:
        raise BadTarget(f"{file.path} cannot be repaired: {_by_commands(file)}")
    if file.notes and PART in {note.label for note in file.notes}:
        raise BadTarget(f"{file.path} cannot be repaired: {_by_commands(file)}")
    if not file.state_dicts:
        module = next(iter(file.modules), None)
        what = (
            f"a whole module ({module.kind}) was pickled with its class: load it where the class is, and save "
            "its state_dict()"
            if module
            else f"it holds {file.root or 'nothing'}, and no state dict: load it, and torch.save its weights by name"
        )
        raise BadTarget(f"{file.path} cannot be repaired: {what}")
    return source


def _by_commands(file: CheckpointFile) -> str:
    """Return what a framework's checkpoint is, and where the command stands that makes whole weights of it."""
    what = next((note.text for note in file.notes if note.label == PART), f"it is a folder of {file.label}")
    known = any(note.command for note in file.notes)
    return f"{what}{'; ddpdoctor inspect gives the command that leads to whole weights' if known else ''}"


def wanted_of(like: Where | None, model: Any) -> tuple[StateDict, ...]:
    """Return the state dicts whose names are wanted; none when nothing shows them.

    Raises:
        BadTarget: both are given, or the checkpoint ``like`` has none.
    """
    if like is not None and model is not None:
        raise BadTarget("name either like or model")
    if like is not None:
        return usable(opened(like)).file.state_dicts
    if model is None:
        return ()
    if isinstance(model, str):
        raise BadTarget(f"model {model!r}: give the module itself; FILE.py:NAME is for the command line")
    named = model.state_dict().items() if hasattr(model, "state_dict") else model
    return (described(named),)
