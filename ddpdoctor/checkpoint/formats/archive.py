"""Reads the directory of a zip archive."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import BinaryIO

from ddpdoctor.checkpoint.formats.archive_end import END_SIZE, FULL, end_of
from ddpdoctor.checkpoint.formats.archive_record import (
    CENTRAL,
    CENTRAL_SIZE,
    DEFLATED,
    HEADER,
    LOCAL_SIZE,
    STORED,
    Record,
    name_at,
    record_at,
)
from ddpdoctor.checkpoint.pickles.values import DamagedError, UnreadableError

MOST_DIRECTORY = 1 << 26  # a million records
REFUSED = 0x2061  # bits of the flags: encrypted or a patch, by any method
FOLDER = 0x10  # a bit of the attributes
LENGTHS = struct.Struct("<28xHHH")  # of name, extra fields and comment
UNDECODED = "\ufffd"  # in a name whose bytes are no UTF-8
BEHIND_HEAD = CENTRAL_SIZE.__add__
MANY = 1 << 12  # records that are read at once


@dataclass(frozen=True, slots=True)
class Directory:
    """The central directory: where it starts, its bytes, where in them each record is told of, and its end.

    ``lengths`` of the names, ``sizes``, ``packed`` sizes and ``offsets`` are those of the records, in the order of
    ``positions``.
    ``end`` are the last 22 bytes of the file and, before them, the locator of a zip64 directory where there is one.
    """

    start: int
    data: bytes
    positions: array[int]
    lengths: array[int]
    sizes: Sequence[int]
    packed: Sequence[int]
    offsets: Sequence[int]
    end: bytes

    def __contains__(self, name: str) -> bool:
        """Whether there is a record of this name."""
        return self._position(name) is not None

    def names(self) -> Iterator[str]:
        """Yield the names of the records, in their order."""
        data = self.data
        for at, length in zip(self.positions, self.lengths, strict=True):
            yield str(data[at + CENTRAL_SIZE : at + CENTRAL_SIZE + length], "utf-8", "replace")

    def record(self, name: str) -> Record:
        """Return a record that is there."""
        at = self._position(name)
        if at is None:
            raise KeyError(name)
        return record_at(self.data, at)

    def _position(self, name: str) -> int | None:
        """Return where a record is told of; of hundreds of thousands, few are ever asked for."""
        if UNDECODED in name:
            return next((at for each, at in zip(self.names(), self.positions, strict=True) if each == name), None)
        wanted, found = name.encode(errors="surrogatepass"), 0
        while (found := self.data.find(wanted, found + 1)) >= 0:
            at = max(0, found - CENTRAL_SIZE)  # a short name can be in the bytes before the first one
            near = bisect_left(self.positions, at)
            if self.positions[near : near + 1] == array("L", [at]) and name_at(self.data, at) == name:
                return at
        return None

    @property
    def wide(self) -> bool:
        """Whether it is a zip64 directory."""
        return len(self.end) > END_SIZE


def directory(file: BinaryIO, size: int) -> Directory:
    """Read the central directory.

    Raises:
        DamagedError: there is none, or what it lists is not in the file.
        UnreadableError: it is larger than any real one.
    """
    start, length, told, end = end_of(file, size)
    if length > MOST_DIRECTORY:
        raise UnreadableError(f"its central directory takes {length} bytes")
    data = at(file, start, length)
    positions, lengths, after = _positions(data)
    sizes, packed, offsets = array("Q"), array("Q"), array("Q")
    for first in range(0, len(positions), MANY):
        for into, numbers in zip(
            (sizes, packed, offsets), _described(data, positions[first : first + MANY], start), strict=True
        ):
            into.extend(numbers)
    if after != len(data) or not positions:
        raise DamagedError("the central directory of the zip archive is broken")
    if len({data[at : at + length] for at, length in zip(map(BEHIND_HEAD, positions), lengths, strict=True)}) < len(
        positions
    ):
        raise DamagedError("the central directory of the zip archive names a record twice")
    if len(positions) != told:
        raise DamagedError(
            f"the central directory of the zip archive has {len(positions)} records, its end says {told}"
        )
    kept = sizes if packed == sizes else packed  # as torch writes it, nothing is packed
    return Directory(start, data, positions, lengths, sizes, kept, offsets, end)


def at(file: BinaryIO, start: int, length: int) -> bytes:
    """Read so many bytes from a position."""
    file.seek(start)
    return file.read(length)


def _positions(data: bytes) -> tuple[array[int], array[int], int]:
    """Return where the records are told of, how long their names are, and where that ends."""
    positions, lengths, at, last = array("L"), array("H"), 0, len(data) - CENTRAL_SIZE
    while at <= last and data.startswith(CENTRAL, at):
        positions.append(at)
        name, extra, comment = LENGTHS.unpack_from(data, at)
        lengths.append(name)
        at += CENTRAL_SIZE + name + extra + comment
    return positions, lengths, at


def _described(data: bytes, positions: Sequence[int], start: int) -> tuple[Sequence[int], ...]:
    """Return sizes, packed sizes and offsets of records, read at once; one by one where anything is unusual.

    Raises:
        DamagedError: a record is not in the file, or torch refuses what is told of it.
    """
    heads = b"".join([data[at : at + CENTRAL_SIZE] for at in positions])
    columns = tuple(zip(*HEADER.iter_unpack(heads), strict=True))
    flags, methods, _, packed, sizes, _, _, _, disks, attributes, offsets = columns
    if (
        set(methods) == {STORED}
        and packed == sizes
        and not any(disks)
        and not any(each & REFUSED for each in set(flags))
        and not any(each & FOLDER for each in set(attributes))
        and max(sizes) < FULL
        and max(offsets) < FULL
        and max(map(add, offsets, packed)) + LOCAL_SIZE <= start
    ):
        return sizes, packed, offsets
    return tuple(zip(*(_seen(data, at, start) for at in positions), strict=True))


def _seen(data: bytes, at: int, start: int) -> tuple[int, int, int]:
    flags, method, _, packed, size, _, _, _, disk, attributes, offset = HEADER.unpack_from(data, at)
    if FULL in (size, packed, offset):
        _, offset, packed, size, *_ = record_at(data, at)
    if offset + LOCAL_SIZE + packed > start:
        raise DamagedError(f"the record {name_at(data, at)} ends behind the bytes that the file holds")
    plain = method == DEFLATED or (method == STORED and packed == size)
    if not plain or flags & REFUSED or disk or (attributes & FOLDER and not name_at(data, at).endswith("/")):
        name = name_at(data, at)
        raise DamagedError(f"the directory of the zip archive describes the record {name} in a way that torch refuses")
    return size, packed, offset
