"""Reads once more what decides a repair where some of the keys have a name that a wrapper has, and a layer can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.keys import shared_front
from ddpdoctor.checkpoint.reader import opened
from ddpdoctor.checkpoint.rename.rules import marked

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, StateDict


def with_paths(file: CheckpointFile) -> CheckpointFile:
    """Return the file with the layers of its ``_metadata``, which inspect leaves out, where they decide something."""
    return opened(file.path).file if any(map(_undecided, file.state_dicts)) else file


def _undecided(state_dict: StateDict) -> bool:
    return state_dict.metadata == () and not shared_front(state_dict.keys) and bool(marked(state_dict.keys))
