"""Reads what torch.save wrote: the zip archive of torch 1.6 and later, and the sequence of pickles before it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any, BinaryIO

from ddpdoctor.checkpoint import archive
from ddpdoctor.checkpoint.contents import CheckpointFile, Format
from ddpdoctor.checkpoint.machine import Machine
from ddpdoctor.checkpoint.opcodes import interpret
from ddpdoctor.checkpoint.survey import items_of, kind_of, survey
from ddpdoctor.checkpoint.tensors import storage_bytes
from ddpdoctor.checkpoint.values import DamagedError, UnreadableError

MAGICS = (
    bytes.fromhex("8a0a6cfc9c46f9206aa850192e"),
    b"L119547037146038801333356L\n.",
)  # 0x1950A86A20F9469CFC6C, pickled
FIRST = 64  # bytes that hold the pickle of the magic number, in any protocol
LENGTH_FIELD = 8  # precedes each storage of the legacy format


def magic_end(head: bytes) -> int:
    """Tell where the magic number of the legacy format ends; 0 when the file does not begin with it."""
    return max(head[:FIRST].find(magic) + len(magic) if magic in head[:FIRST] else 0 for magic in MAGICS)


def read_zip(file: BinaryIO, blank: CheckpointFile) -> CheckpointFile:
    """Read a zip archive; ``blank`` is what is known already."""
    blank = replace(blank, format=Format.TORCH)
    try:
        records = archive.directory(file, blank.size)
        folder = next(iter(records)).partition("/")[0] + "/"  # torch takes that of the first record
        inner = {name[len(folder) :]: record for name, record in records.items() if name.startswith(folder)}
        if found := _other_archive(records, inner):
            return replace(blank, format=found)
        data = archive.read(file, inner["data.pkl"])
        root, machine = interpret(io.BytesIO(data), len(data))
        known = _described(blank, machine, root)
        _check_records(machine, inner)
    except DamagedError as exc:
        return replace(blank, damage=str(exc))
    except UnreadableError as exc:
        return replace(blank, opaque=str(exc))
    return known


def read_legacy(file: BinaryIO, start: int, blank: CheckpointFile) -> CheckpointFile:
    """Read the legacy format behind its magic number: version, machine, object, keys of the storages; the storages."""
    blank = replace(blank, format=Format.LEGACY)
    try:
        file.seek(start)
        for _ in ("version", "machine"):
            interpret(file, blank.size)
        root, machine = interpret(file, blank.size)
        known = _described(blank, machine, root)
        keys, _ = interpret(file, blank.size)
        _check_length(machine, keys, file.tell(), blank.size)
    except DamagedError as exc:
        return replace(blank, damage=str(exc))
    except UnreadableError as exc:
        return replace(blank, opaque=str(exc))
    return known


def _other_archive(records: dict[str, archive.Record], inner: dict[str, archive.Record]) -> Format | None:
    if "archive_format" in inner or "serialized_exported_program.json" in records:
        return Format.EXPORT
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return Format.TORCHSCRIPT
    return None if "data.pkl" in inner else Format.ZIP


def _described(blank: CheckpointFile, machine: Machine, root: Any) -> CheckpointFile:
    found = survey(root)
    return replace(
        blank,
        root=kind_of(root),
        globals=tuple(machine.names),
        items=items_of(root),
        state_dicts=tuple(found.state_dicts),
        modules=tuple(found.modules),
    )


def _check_records(machine: Machine, inner: dict[str, archive.Record]) -> None:
    """See that each storage of the pickle is in the archive."""
    wanted = dict.fromkeys(reference.storage[1] for reference in machine.references if reference.storage)
    lost = [key for key in wanted if f"data/{key}" not in inner]
    if lost:
        raise DamagedError(
            f"{len(lost)} of {len(wanted)} tensors' data is not in the archive, the first is data/{lost[0]}"
        )


def _check_length(machine: Machine, keys: Any, at: int, size: int) -> None:
    """See that the storages, which stand one after the other at the end, are all there."""
    storages = {each[1]: each for reference in machine.references if (each := reference.storage)}
    lengths = [storage_bytes(each) for each in storages.values()]
    if not isinstance(keys, list) or len(keys) != len(storages) or None in lengths:
        return
    needed = at + sum(length + LENGTH_FIELD for length in lengths if length is not None)
    if needed > size:
        raise DamagedError(f"its tensors end at byte {needed}, the file at byte {size}")
