"""Looks into checkpoints, and renames their keys, without running a pickle, reading a tensor or importing torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, Format, Item, PickledModule, StateDict, subscript

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.reader import inspect
    from ddpdoctor.checkpoint.rename.fit import NoMatch
    from ddpdoctor.checkpoint.rename.plan import Renamed
    from ddpdoctor.checkpoint.rename.repair import Repair, ordered, repair, undo
    from ddpdoctor.checkpoint.rename.several import SomeRefused, repair_all, undo_all

LATER = {
    "NoMatch": "rename.fit",
    "Renamed": "rename.plan",
    "Repair": "rename.repair",
    "SomeRefused": "rename.several",
    "inspect": "reader",
    "ordered": "rename.repair",
    "repair": "rename.repair",
    "repair_all": "rename.several",
    "undo": "rename.repair",
    "undo_all": "rename.several",
}  # where each stands; the checks need but the nouns, and a command that reads no checkpoint starts faster without

__all__ = [
    "CheckpointFile",
    "Entry",
    "Format",
    "Item",
    "NoMatch",
    "PickledModule",
    "Renamed",
    "Repair",
    "SomeRefused",
    "StateDict",
    "inspect",
    "ordered",
    "repair",
    "repair_all",
    "subscript",
    "undo",
    "undo_all",
]


def __getattr__(name: str) -> Any:
    """Import what reads and changes checkpoints when it is asked for."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{LATER[name]}"), name)
