"""Tells what kind of file a checkpoint is, and has it read."""

from __future__ import annotations

import gc
import json
import mmap
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ddpdoctor.checkpoint.columns import by_columns
from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, Format, Location, StateDict
from ddpdoctor.checkpoint.formats import safetensors, torchfile
from ddpdoctor.checkpoint.formats.deepspeed import part_of
from ddpdoctor.checkpoint.formats.distributed import METADATA, Metadata, read_distributed, unfinished, whole_of
from ddpdoctor.checkpoint.formats.folders import folder_of
from ddpdoctor.checkpoint.formats.foreign import foreign
from ddpdoctor.checkpoint.formats.legacy import magic_end, read_legacy
from ddpdoctor.checkpoint.lines import one_line
from ddpdoctor.checkpoint.offered import offered
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.values import UnreadableError
from ddpdoctor.checkpoint.steps import was_killed
from ddpdoctor.facets import BadTarget
from ddpdoctor.suggest import why_no_file

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.formats.safetensors import Header
    from ddpdoctor.checkpoint.formats.torchfile import Pickled

HEAD = 4096
INDEX = ".index.json"  # of safetensors and of pickled shards
MOST_INDEX = 1 << 27
SUFFIXES = {".bin", ".ckpt", ".pt", ".pth", ".safetensors"}


@dataclass(frozen=True, slots=True)
class Shards:
    """The files of a checkpoint in several, and its index."""

    index: dict[str, Any]
    parts: tuple[Opened, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint with what a change of it needs; ``main`` is the file that has the names, ``stamp`` its state then.

    ``inside`` is None where the names cannot be told, or changed.
    """

    file: CheckpointFile
    main: Path
    stamp: tuple[int, int, int]
    inside: Pickled | Header | Metadata | Shards | None


def inspect(path: str | os.PathLike[str]) -> CheckpointFile:
    """Look at a checkpoint: its pickle is not run, its tensors are not read.

    A file that is damaged, or no checkpoint at all, is described as that.

    Raises:
        BadTarget: there is no such file, it cannot be opened, or it is a directory that is no checkpoint.
    """
    with one_line(os.fspath(path)):
        return opened(path, change=False).file


def opened(path: str | os.PathLike[str], places: Collection[Location] | None = None, *, change: bool = True) -> Opened:
    """Look at a checkpoint that is to be changed; else as ``inspect``. What a ``change`` needs takes memory.

    ``places`` are where its state dicts stand, when that is known; nothing is guessed then.
    """
    text = os.fspath(path)
    try:
        with paused_collector():
            if Path(text).is_dir():
                return _directory(Path(text), places, change=change)
            if not Path(text).is_file():
                raise BadTarget(why_no_file(text))
            if text.endswith(INDEX):
                return _sharded(Path(text), text, change=change)
            return _file(text, places, change=change)
    except (OSError, ValueError) as exc:
        raise BadTarget(f"{text} cannot be read: {getattr(exc, 'strerror', '') or exc}") from None


def stamp(path: Path) -> tuple[int, int, int]:
    """Return what tells a state of a file from others: its inode, size, and time of change."""
    known = path.stat()
    return known.st_ino, known.st_size, known.st_mtime_ns


@contextmanager
def paused_collector() -> Iterator[None]:
    """Keep the garbage collector from walking, again and again, the millions of values of a large checkpoint."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _file(text: str, places: Collection[Location] | None, *, change: bool) -> Opened:
    path = Path(text)
    state = stamp(path)
    with path.open("rb") as file:
        known, inside = _sniffed(file, text, state[1], places, change=change)
    return Opened(replace(known, notes=part_of(path)), path, state, inside)


def _directory(path: Path, places: Collection[Location] | None, *, change: bool) -> Opened:
    if (metadata := path / METADATA).is_file():
        blank = CheckpointFile(str(path), Format.DCP, metadata.stat().st_size)
        known, inside = read_distributed(path, replace(blank, notes=(whole_of(path),)), places)
        return Opened(known, metadata, stamp(metadata), inside)
    if len(indices := sorted(path.glob(f"*{INDEX}"))) == 1:
        return _sharded(indices[0], str(path), change=change)
    if folder := folder_of(path):
        return Opened(folder, path, stamp(path), None)
    if told := unfinished(path):
        raise BadTarget(told)
    models, others = models_in(path)
    if len(models) == 1:
        return _file(str(models[0]), places, change=change)
    told = f"{path} is a directory without the {METADATA} of a distributed checkpoint"
    raise BadTarget(told + offered(path, (*models, *others), (is_one, folder_of, checkpoints_in)))


def is_one(folder: Path) -> bool:
    """Whether a folder is one checkpoint, rather than that it holds some."""
    return (folder / METADATA).is_file() or len(list(folder.glob(f"*{INDEX}"))) == 1


def checkpoints_in(folder: Path) -> list[Path]:
    """List the indices of shards in a folder, and the files that are called as checkpoints are and are no shards."""
    indices = sorted(folder.glob(f"*{INDEX}"))
    shards = {name for index in indices for name in _shards_of(index)}
    files = sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES and each.is_file())
    own = {each.resolve() for each in files if not each.is_symlink()}  # last.ckpt is often but another name of one
    files = [each for each in files if not (each.is_symlink() and each.resolve() in own)]
    return [*indices, *(each for each in files if each.name not in shards)]


def models_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """List the checkpoints of a folder that are to be repaired, and its files that hold no weights by name.

    An optimizer, a scheduler, the states of random generators: frameworks save them beside the weights, in files of
    their own. Where there is nothing else, all are to be repaired, as is what cannot be read: that is refused.
    """
    files = checkpoints_in(folder)
    others = [each for each in files if _without_weights(each)]
    return ([each for each in files if each not in others], others) if len(others) < len(files) else (files, [])


def _without_weights(path: Path) -> bool:
    try:
        file = inspect(path)
    except BadTarget:
        return False
    known = file.format in {Format.TORCH, Format.LEGACY} and not (file.damage or file.opaque or file.notes)
    return known and not (file.state_dicts or file.modules)


def index_of(path: Path) -> Path | None:
    """Return the index that has a file among its shards; None where there is none."""
    indices = sorted(path.parent.glob(f"*{INDEX}")) if path.suffix in SUFFIXES else []
    return next((index for index in indices if path.name in _shards_of(index)), None)


def _shards_of(index: Path) -> frozenset[str]:
    try:
        return frozenset(_index(index)["weight_map"].values())
    except (UnreadableError, OSError):
        return frozenset()


def _sharded(index: Path, text: str, *, change: bool) -> Opened:
    blank = CheckpointFile(text, Format.SHARDED, index.stat().st_size)
    state = stamp(index)
    try:
        told = _index(index)
        names = dict.fromkeys(told["weight_map"].values())
        parts = tuple(_file(str(index.parent / name), [()], change=change) for name in names)
    except FileNotFoundError as exc:
        lost = replace(blank, damage=f"{index.name} names {exc.filename}, which is not there")
        return Opened(lost, index, state, None)
    except UnreadableError as exc:
        return Opened(replace(blank, opaque=f"{index.name}: {exc}"), index, state, None)
    known = _joined(blank, told["weight_map"], parts)
    if known.damage and was_killed(index):
        known = replace(known, damage=f"a repair was killed between two of its files: {known.damage}", half_done=True)
    sound = not (known.damage or known.opaque)
    return Opened(known, index, state, Shards(told, parts) if sound else None)


def _index(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_INDEX:
        raise UnreadableError("it is larger than any real index")
    try:
        told = json.loads(path.read_bytes())
        names = list(told["weight_map"].values())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise UnreadableError("it is no index of shards: JSON with a weight_map") from None
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise UnreadableError("its weight_map names no files of its folder")
    return dict(told)


def _joined(blank: CheckpointFile, weight_map: dict[str, str], parts: tuple[Opened, ...]) -> CheckpointFile:
    """Describe the parts as the one checkpoint that they are."""
    for part in parts:
        file = part.file
        if file.damage:
            return replace(blank, damage=f"{file.path}: {file.damage}")
        if [each.location for each in file.state_dicts] != [()]:
            return replace(blank, opaque=f"{file.path}: {file.opaque or 'it is no state dict'}")
    names = {str(part.main.name): part.file.state_dicts[0] for part in parts}
    found = {key: name for name, state_dict in names.items() for key in state_dict.keys}
    found |= {key: name for name, state_dict in names.items() for key in state_dict.others if key in weight_map}
    if odd := next((key for key in weight_map.keys() | found if weight_map.get(key) != found.get(key)), ""):
        told, real = weight_map.get(odd, "no file"), found.get(odd, "no file")
        return replace(blank, damage=f"its index has {odd} in {told}, it is in {real}")
    entries = by_columns(Entry, (entry for state_dict in names.values() for entry in state_dict.entries))
    return replace(
        blank,
        size=blank.size + sum(part.file.size for part in parts),
        root=f"dict of {len(entries)} in {len(parts)} files",
        globals=tuple(dict.fromkeys(name for part in parts for name in part.file.globals)),
        state_dicts=(
            StateDict(
                (),
                entries,
                tuple(key for each in names.values() for key in each.others),
                plain=tuple(key for each in names.values() for key in each.plain),
            ),
        ),
    )


def _sniffed(
    file: BinaryIO, path: str, size: int, places: Collection[Location] | None, *, change: bool
) -> tuple[CheckpointFile, Pickled | Header | None]:
    head = file.read(HEAD)
    blank = CheckpointFile(path, Format.OTHER, size)
    if head.startswith(b"PK"):
        return torchfile.read_zip(file, blank, places, change=change)
    if start := magic_end(head):
        return read_legacy(file, start, replace(blank, format=Format.LEGACY), places)
    if safetensors.looks_like(head, size):
        return safetensors.read_safetensors(file, blank)
    return _plain_pickle(file, foreign(path, head, size)), None


def _plain_pickle(file: BinaryIO, known: CheckpointFile) -> CheckpointFile:
    """Return what a pickle that is no checkpoint imports: torch.load, given such a file, would unpickle it.

    One of an old protocol looks like any text.
    """
    if known.format not in {Format.PICKLE, Format.TEXT, Format.OTHER} or not known.size:
        return known
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            names = tuple(interpret(data, quick=False)[1].names)
        except UnreadableError as exc:
            names = exc.names if known.format is Format.PICKLE else ()
    return replace(known, format=Format.PICKLE, label="", globals=names) if names else known
