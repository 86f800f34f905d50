"""What is read from checkpoints, and written."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Event):
    """load_state_dict has returned: how many keys were given, how many the module has, how many of them matched.

    ``path`` is the file that they were read from, where it is known; ``wrapped`` says that DDP holds the module, or
    that it is one. ``own``: what was given were the values that the module had already; then ``given``, ``unexpected``
    and ``path`` are those of the file that was read last, of which no key is one of the module's.
    """

    kind: str
    given: int
    wanted: int
    matched: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    path: str
    wrapped: bool
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten(Event):
    """torch.save has written a path: from ``began`` to ``time``, after so many optimizer steps of this process.

    ``shards`` counts the tensors in it of which this rank has a part alone, ``copied`` plain tensors beside them that
    are copies of such parts, ``moments`` those of the state of an optimizer that steps on such parts, ``emptied``
    those that DeepSpeed's ZeRO 3 has left empty, where the script itself saves them; ``tensors`` all of them then.
    ``progress`` are whole numbers in it that say how far the training is, by their keys.
    """

    path: str
    began: float
    steps: int
    shards: int = 0
    copied: int = 0
    moments: int = 0
    emptied: int = 0
    tensors: int = 0
    progress: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead(Event):
    """torch.load begins to read a path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOpened(Event):
    """The user's code opens a file, other than by torch: to write it anew or to append to it, or to read it.

    Reads are told before the first step of an optimizer alone. ``size`` is what the file had before, in bytes, -1
    where there was none; ``communications`` counts those that the process had begun.
    """

    path: str
    writes: bool
    appends: bool
    size: int
    communications: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGrew(Event):
    """A file that this process has read before its first optimizer step has another size at that step, in bytes."""

    path: str
    before: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsNotAsked(Event):
    """torch.distributed.checkpoint has loaded from ``folder`` into what holds an optimizer that has no state yet.

    ``key`` is that of the optimizer; of its state the folder has ``entries``, which the load has not asked for.
    """

    folder: str
    key: str
    entries: int
