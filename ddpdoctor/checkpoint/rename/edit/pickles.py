"""Writes a pickle again with other strings in some places; every other byte of it stays."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.keys import WRAPPER_NAMES, Strip, has_wrappers
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.values import Text, UnreadableError
from ddpdoctor.checkpoint.rename.optimizers import followed
from ddpdoctor.checkpoint.rename.plan import Renamed, modules, moved, names_of

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile
    from ddpdoctor.checkpoint.pickles.pickle_vm import Machine

LINES = b"SV"  # strings that end with their line
LENGTHS = {ord("T"): "<i", ord("U"): "<B", ord("X"): "<I", 0x8C: "<B", 0x8D: "<Q"}
GETS = {ord("h"): 2, ord("j"): 5}
FRAME_SIZE = 9


def wanted(file: CheckpointFile, plan: tuple[Renamed, ...]) -> dict[int, str]:
    """Return the new strings by the position of the opcodes that now put the old ones on the stack.

    Raises:
        UnreadableError: a name has no opcode of its own, or two of different new names share one.
    """
    found: dict[int, str] = {}
    for old, new in _names(file, plan):
        if not isinstance(old, Text) or old.at < 0:
            raise UnreadableError(f"its pickle makes the key {str(old)!r} by code")
        if old == new and old.at not in found:
            continue
        if found.setdefault(old.at, new) != new:
            raise UnreadableError(f"its pickle has one string for two keys, {found[old.at]!r} and {new!r}")
    return found


def _names(file: CheckpointFile, plan: tuple[Renamed, ...]) -> Iterator[tuple[str, str]]:
    for state_dict, each in zip(file.state_dicts, plan, strict=True):
        if not each.renamed:
            continue
        yield from each.renamed
        if state_dict.metadata:
            yield from _paths(state_dict.metadata, names_of(state_dict), dict(each.renamed))
    yield from followed(file, plan)


def _paths(old: Iterable[str], keys: Iterable[str], new: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield old and new paths of modules, which are the keys of ``_metadata``."""
    names = {key: new.get(key, key) for key in keys}
    paths = modules(names)
    pairs = [(path, moved(path, paths)) for path in old]
    # FSDP1 takes its own name out of the keys, not out of these paths.
    if has_wrappers("\n".join(path for _, path in pairs)):
        bare = Strip((), WRAPPER_NAMES)
        if not has_wrappers("\n".join(names.values())) or all(bare(name) == name for name in names.values()):
            pairs = [(path, bare(f"{other}.")[:-1] if other else other) for path, other in pairs]
    yield from pairs


def rewritten(data: bytes, start: int, stop: int, machine: Machine, strings: Mapping[int, str]) -> bytes:
    """Return the pickle that stands from ``start`` to ``stop``, with these strings at these positions.

    A string that is fetched from the memo elsewhere, and stays as it was there, is spelled out there.
    """
    if not strings:
        return data[start:stop]
    if not machine.skipped.isdisjoint(strings):
        machine = interpret(data, start, quick=False)[1]  # which notes each single fetch
    edits = dict(strings)
    fetched = defaultdict(list)
    for at, source in machine.fetched:
        fetched[source].append(at)
    for source in fetched.keys() & strings.keys():
        old = _spelled(data, source)
        for at in fetched[source]:
            edits.setdefault(at, old)
    for source, new in strings.items():
        for at in fetched.get(source, ()):
            if edits[at] == new:
                del edits[at]  # the memo has it
    return b"".join(_pieces(data, start, stop, edits, machine.frames))


def _pieces(data: bytes, start: int, stop: int, edits: Mapping[int, str], frames: Iterable[int]) -> Iterator[bytes]:
    at = start
    left_out = dict.fromkeys(frames)  # their lengths would not hold, and they are optional
    for position in sorted((*edits, *left_out)):
        yield data[at:position]
        if position in left_out:
            at = position + FRAME_SIZE
        else:
            text = edits[position].encode("utf-8", "surrogatepass")
            yield b"X" + struct.pack("<I", len(text)) + text
            at = _end(data, position)
    yield data[at:stop]


def _end(data: bytes, at: int) -> int:
    """Return where the opcode ends that puts a string on the stack."""
    code = data[at]
    if code in GETS:
        return at + GETS[code]
    if code in LENGTHS:
        form = LENGTHS[code]
        return at + 1 + struct.calcsize(form) + int(struct.unpack_from(form, data, at + 1)[0])
    return data.index(b"\n", at) + 1


def _spelled(data: bytes, at: int) -> str:
    code = data[at]
    if code in LINES:
        line = data[at + 1 : _end(data, at) - 1]
        return line.decode("raw-unicode-escape") if code == ord("V") else line.strip()[1:-1].decode()
    end = _end(data, at)
    return data[at + 1 + struct.calcsize(LENGTHS[code]) : end].decode("utf-8", "surrogatepass")
