"""Reads what torch.save wrote before torch 1.6: a sequence of pickles, then the storages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from ddpdoctor.checkpoint.formats.archive_record import MOST_RECORD
from ddpdoctor.checkpoint.formats.torchfile import Pickled, described
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.tensors import storage_bytes
from ddpdoctor.checkpoint.pickles.values import DamagedError, UnreadableError

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, Location
    from ddpdoctor.checkpoint.pickles.pickle_vm import Machine

MAGICS = (
    bytes.fromhex("8a0a6cfc9c46f9206aa850192e"),
    b"L119547037146038801333356L\n.",
)  # 0x1950A86A20F9469CFC6C, pickled
FIRST = 64  # bytes that hold the pickle of the magic number, in any protocol
PROTOCOL = 1001  # torch.serialization.PROTOCOL_VERSION, which never changed
WINDOW = 1 << 20  # bytes that are read first: the pickles of most files, not their storages
LENGTH_FIELD = 8  # precedes each storage


def magic_end(head: bytes) -> int:
    """Return where the magic number of the legacy format ends; 0 when the file does not begin with it."""
    return max(head[:FIRST].find(magic) + len(magic) if magic in head[:FIRST] else 0 for magic in MAGICS)


def read_legacy(
    file: BinaryIO, start: int, blank: CheckpointFile, places: Collection[Location] | None = None
) -> tuple[CheckpointFile, Pickled | None]:
    """Read the pickles behind the magic number: version, machine, object, keys of the storages; then the storages."""
    window = WINDOW
    while True:
        file.seek(0)
        data = file.read(window)
        try:
            return _read(file, data, start, blank, places)
        except DamagedError as exc:
            if len(data) == blank.size:
                return replace(blank, damage=str(exc)), None
            if len(data) >= MOST_RECORD:
                return replace(blank, opaque="its pickle is too long"), None
        except UnreadableError as exc:
            return replace(blank, opaque=str(exc), globals=exc.names), None
        window *= 32


def _read(
    file: BinaryIO, data: bytes, start: int, blank: CheckpointFile, places: Collection[Location] | None
) -> tuple[CheckpointFile, Pickled]:
    machines = [interpret(data)[1]]  # of the magic number, before which there can be something
    version, machine = interpret(data, start)
    if version != PROTOCOL:
        raise UnreadableError(f"its version is {version!r:.40}, not {PROTOCOL}")
    machines += [machine, interpret(data, machine.at)[1]]
    start = machines[-1].at
    root, machine = interpret(data, start)
    known = described(blank, machine, root, places)
    keys, after = interpret(data, machine.at)
    # Each of these pickles is unpickled by torch.load.
    names = dict.fromkeys(name for each in (machine, *machines, after) for name in each.names)
    known = replace(known, globals=tuple(names), damage=_damage(file, machine, keys, after.at, blank.size))
    return known, Pickled(data, start, machine)


def _damage(file: BinaryIO, machine: Machine, keys: Any, at: int, size: int) -> str:
    """Return how the storages, which stand one after the other at the end, are broken; empty when they are not."""
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(machine.storages):
        return "its list of storages is not that of its tensors"
    for key in keys:
        storage = machine.storages[str(key)]
        length = storage_bytes(storage)
        if length is None:
            return ""  # of a class that is not known
        file.seek(at)
        count = int.from_bytes(file.read(LENGTH_FIELD), "little")
        if count != storage[1] and at + LENGTH_FIELD <= size:
            return f"the storage {key} has {count} elements, the tensors in it need {storage[1]}"
        at += length + LENGTH_FIELD
    return f"its tensors end at byte {at}, the file at byte {size}" if at > size else ""
