"""What a checkpoint file holds, as far as that is told without running its pickle and without reading its tensors."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.columns import Columns

Location = tuple[str | int, ...]


class Format(enum.Enum):
    """What kind of file it is."""

    TORCH = "torch zip archive"
    LEGACY = "torch file of the format before 1.6"
    SAFETENSORS = "safetensors file"
    DCP = "distributed checkpoint (DCP) directory"
    SHARDED = "checkpoint in several files, with an index"
    FOLDER = "checkpoint folder of a framework"
    TORCHSCRIPT = "TorchScript archive"
    EXPORT = "torch.export archive"
    ZIP = "zip archive that torch did not write"
    EMPTY = "empty file"
    LFS = "git-lfs pointer"
    HTML = "HTML page"
    TEXT = "text file"
    PICKLE = "plain pickle that torch.save did not write"
    OTHER = "file of another kind"

    @property
    def loads(self) -> bool:
        """Whether torch, or safetensors, reads weights from such a thing."""
        return self in LOADABLE


LOADABLE = {
    Format.TORCH,
    Format.LEGACY,
    Format.SAFETENSORS,
    Format.DCP,
    Format.SHARDED,
    Format.FOLDER,
    Format.TORCHSCRIPT,
    Format.EXPORT,
}


class Entry(NamedTuple):
    """One tensor of a state dict; ``dtype`` without ``torch.``; ``sharded`` when the file holds but a part of it."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    sharded: bool = False


@dataclass(frozen=True)
class StateDict:
    """A mapping from names to tensors; ``location`` is the way to it, ``others`` its keys that hold no tensor.

    ``plain`` are those of them that hold a number, a text or None; ``metadata`` the paths of layers of which it tells
    the versions, None when it tells none; of an archive that is only looked at, none of them are kept.
    """

    location: Location
    entries: Columns[Entry]
    others: tuple[str, ...] = ()
    metadata: tuple[str, ...] | None = None
    plain: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the tensors, in the order of the file."""
        return self.entries.columns[0]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The state of an optimizer that is kept by the names of parameters; ``names`` are all that name one."""

    location: Location
    names: tuple[str, ...]


def as_numbers(location: Location) -> str:
    """Return the line that makes numbers of the text that a state of an optimizer has in their place."""
    state = subscript("ckpt", (*location, "state"))
    return f"{state} = {{int(key): each for key, each in {state}.items()}}"


@dataclass(frozen=True, slots=True)
class PickledModule:
    """A whole module that was pickled with its class, instead of its state dict."""

    location: Location
    kind: str


class Note(NamedTuple):
    """Something else to be known of a checkpoint: a text, or a command that can be pasted."""

    label: str
    text: str = ""
    command: tuple[str, ...] = ()


class Item(NamedTuple):
    """One item of the outermost mapping: its key, and what kind of value stands there."""

    key: str
    kind: str


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checkpoint file.

    ``damage`` says how the file is broken, empty when it is whole; ``opaque`` why its contents are not told, empty when
    they are. ``globals`` are the names that its pickle would import; ``label`` says more of a file of another kind.
    ``notes`` tell what frameworks know of it, such as what converts it. ``half_done`` says that a repair in place of it
    was killed, which ``undo`` takes back.
    """

    path: str
    format: Format
    size: int
    damage: str = ""
    opaque: str = ""
    label: str = ""
    root: str = ""
    globals: tuple[str, ...] = ()
    items: Sequence[Item] = ()
    state_dicts: tuple[StateDict, ...] = ()
    modules: tuple[PickledModule, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    notes: tuple[Note, ...] = ()
    half_done: bool = False


def subscript(name: str, location: Location) -> str:
    """Return the Python expression that reaches a location: ``ckpt["model"]``."""
    steps = (
        f"[{step}]" if isinstance(step, int) else '["' + repr(step)[1:-1].replace('"', '\\"') + '"]'
        for step in location
    )
    return name + "".join(steps)
