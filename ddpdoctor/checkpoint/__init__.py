"""Looks into checkpoint files without running their pickle, without reading their tensors and without torch."""

from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, Format, Item, PickledModule, StateDict, subscript
from ddpdoctor.checkpoint.reader import read

__all__ = ["CheckpointFile", "Entry", "Format", "Item", "PickledModule", "StateDict", "read", "subscript"]
