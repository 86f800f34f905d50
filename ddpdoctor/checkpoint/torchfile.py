"""Reads what torch.save wrote: the zip archive of torch 1.6 and later, and the sequence of pickles before it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from ddpdoctor.checkpoint import archive
from ddpdoctor.checkpoint.contents import CheckpointFile, Format
from ddpdoctor.checkpoint.opcodes import interpret
from ddpdoctor.checkpoint.survey import items_of, kind_of, survey
from ddpdoctor.checkpoint.tensors import storage_bytes
from ddpdoctor.checkpoint.values import DamagedError, UnreadableError

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.machine import Machine

MAGICS = (
    bytes.fromhex("8a0a6cfc9c46f9206aa850192e"),
    b"L119547037146038801333356L\n.",
)  # 0x1950A86A20F9469CFC6C, pickled
FIRST = 64  # bytes that hold the pickle of the magic number, in any protocol
WINDOW = 1 << 20  # bytes that are read first: the pickles of most files, not their storages
LENGTH_FIELD = 8  # precedes each storage of the legacy format


def magic_end(head: bytes) -> int:
    """Tell where the magic number of the legacy format ends; 0 when the file does not begin with it."""
    return max(head[:FIRST].find(magic) + len(magic) if magic in head[:FIRST] else 0 for magic in MAGICS)


@dataclass(frozen=True, slots=True)
class Pickled:
    """The pickle of a file: ``data`` hold it from ``start`` to where ``machine`` stands; the zip archive around it."""

    data: bytes
    start: int
    machine: Machine
    directory: archive.Directory | None = None
    record: archive.Record | None = None


def read_zip(file: BinaryIO, blank: CheckpointFile) -> tuple[CheckpointFile, Pickled | None]:
    """Read a zip archive; ``blank`` is what is known already."""
    blank = replace(blank, format=Format.TORCH)
    try:
        directory = archive.directory(file, blank.size)
        names = directory.entries
        folder = next(iter(names)).partition("/")[0] + "/"  # torch takes that of the first record
        if found := _other_archive(names, folder):
            return replace(blank, format=found), None
        record = directory.record(f"{folder}data.pkl")
        data = archive.read(file, record)
        root, machine = interpret(data)
        known = _described(blank, machine, root)
        _check_records(machine, names, folder)
    except DamagedError as exc:
        return replace(blank, damage=str(exc)), None
    except UnreadableError as exc:
        return replace(blank, opaque=str(exc)), None
    return known, Pickled(data, 0, machine, directory, record)


def read_legacy(file: BinaryIO, start: int, blank: CheckpointFile) -> tuple[CheckpointFile, Pickled | None]:
    """Read the legacy format behind its magic number: version, machine, object, keys of the storages; the storages."""
    blank = replace(blank, format=Format.LEGACY)
    window = WINDOW
    while True:
        file.seek(0)
        data = file.read(window)
        try:
            return _legacy(data, start, blank)
        except DamagedError as exc:
            if len(data) == blank.size:
                return replace(blank, damage=str(exc)), None
            if len(data) >= archive.MOST_RECORD:
                return replace(blank, opaque="its pickle is too long"), None
        except UnreadableError as exc:
            return replace(blank, opaque=str(exc)), None
        window *= 8


def _legacy(data: bytes, start: int, blank: CheckpointFile) -> tuple[CheckpointFile, Pickled]:
    for _ in ("version", "machine"):
        start = interpret(data, start)[1].at
    root, machine = interpret(data, start)
    known = _described(blank, machine, root)
    keys, after = interpret(data, machine.at)
    if shortage := _shortage(machine, keys, after.at, blank.size):
        known = replace(blank, damage=shortage)
    return known, Pickled(data, start, machine)


def _other_archive(names: Collection[str], folder: str) -> Format | None:
    if f"{folder}archive_format" in names or "serialized_exported_program.json" in names:
        return Format.EXPORT
    if f"{folder}constants.pkl" in names and any(name.startswith(f"{folder}code/") for name in names):
        return Format.TORCHSCRIPT
    return None if f"{folder}data.pkl" in names else Format.ZIP


def _described(blank: CheckpointFile, machine: Machine, root: Any) -> CheckpointFile:
    found = survey(root)
    return replace(
        blank,
        root=kind_of(root),
        globals=tuple(machine.names),
        items=items_of(root),
        state_dicts=tuple(found.state_dicts),
        modules=tuple(found.modules),
        optimizers=tuple(found.optimizers),
    )


def _check_records(machine: Machine, names: Collection[str], folder: str) -> None:
    """See that each storage of the pickle is in the archive."""
    lost = [key for key in machine.storages if f"{folder}data/{key}" not in names]
    if lost:
        raise DamagedError(
            f"{len(lost)} of {len(machine.storages)} tensors' data is not in the archive, the first is data/{lost[0]}"
        )


def _shortage(machine: Machine, keys: Any, at: int, size: int) -> str:
    """Say by how much the storages, which stand one after the other at the end, are cut off; empty when not."""
    lengths = [storage_bytes(each) for each in machine.storages.values()]
    if not isinstance(keys, list) or len(keys) != len(lengths) or None in lengths:
        return ""
    needed = at + sum(length + LENGTH_FIELD for length in lengths if length is not None)
    return f"its tensors end at byte {needed}, the file at byte {size}" if needed > size else ""
