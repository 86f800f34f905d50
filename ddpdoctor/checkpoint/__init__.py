"""Looks into checkpoints, and renames their keys, without running a pickle, reading a tensor or importing torch."""

from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, Format, Item, PickledModule, StateDict, subscript
from ddpdoctor.checkpoint.mend.fit import NoMatch
from ddpdoctor.checkpoint.mend.plan import Renamed
from ddpdoctor.checkpoint.mend.repair import Repair, repair, undo
from ddpdoctor.checkpoint.reader import inspect

__all__ = [
    "CheckpointFile",
    "Entry",
    "Format",
    "Item",
    "NoMatch",
    "PickledModule",
    "Renamed",
    "Repair",
    "StateDict",
    "inspect",
    "repair",
    "subscript",
    "undo",
]
