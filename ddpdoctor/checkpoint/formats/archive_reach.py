"""Sees whether each record of a zip archive is where its directory says, by the header that stands before it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import lt
from typing import TYPE_CHECKING, BinaryIO

from ddpdoctor.checkpoint.formats.archive_record import CENTRAL_SIZE, FIELD, LOCAL, LOCAL_SIZE
from ddpdoctor.checkpoint.pickles.values import DamagedError

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.formats.archive import Directory

PAGE = 4096
NEAR = 1 << 16  # bytes that are read at once where records are small
DESCRIBED_BEHIND = 0x8  # a bit of the flags: sizes and CRC-32 stand behind the record, too
DESCRIPTOR = b"PK\x07\x08"
HEADER = struct.Struct("<4s2xHH16xHH")  # magic, flags, method, lengths of name and extra fields
TOLD = struct.Struct("<10xH4xI8xH")  # of a central entry: method, CRC-32, length of the name


@dataclass(slots=True)
class Pages:
    """Reads short parts of a file in rising order, some at a time."""

    descriptor: int
    start: int = 0
    data: bytes = b""

    def read(self, at: int, length: int, ahead: int = PAGE) -> bytes:
        """Return so many bytes from a position, fewer at the end of the file; ``ahead`` are read for the next calls."""
        first = at - self.start
        if first < 0 or first + length > len(self.data):
            self.start, self.data, first = at, os.pread(self.descriptor, max(length, ahead), at), 0
        return self.data[first : first + length]


def reach(file: BinaryIO, directory: Directory) -> None:
    """See that each record is where the directory says, and ends before the next one: its own header tells, too.

    Raises:
        DamagedError: it is not so.
    """
    pages = Pages(file.fileno())
    told = directory.data
    for (offset, packed, entry), stop in _with_stops(directory):
        if _is_usual(pages.data, told, entry, offset - pages.start, packed, stop - pages.start):
            continue  # as nearly all are
        wrong = _wrong(pages, directory.data, entry, offset, packed, stop)
        if wrong:
            name = next(name for name, at in zip(directory.names(), directory.positions, strict=True) if at == entry)
            raise DamagedError(f"the record {name} {wrong}")


def _with_stops(directory: Directory) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Yield offset, packed size and entry of each record as they stand in the file, with where the next one begins.

    They mostly are in that order already: of hundreds of thousands, no list is made then.
    """
    records: Iterable[tuple[int, int, int]] = zip(directory.offsets, directory.packed, directory.positions, strict=True)
    offsets = directory.offsets
    if not all(map(lt, offsets, islice(offsets, 1, None))):
        records = sorted(records)
        offsets = [offset for offset, _, _ in records]
    return zip(records, chain(islice(offsets, 1, None), (directory.start,)), strict=True)


def _is_usual(data: bytes, told: bytes, entry: int, at: int, packed: int, stop: int) -> bool:  # noqa: PLR0913, PLR0917
    """Whether all that ``_wrong`` looks at is among the bytes that were read, and right, and as torch writes it."""
    if at < 0 or at + LOCAL_SIZE > stop or stop + len(DESCRIPTOR) > len(data):
        return False
    magic, flags, own_method, own_length, extra = HEADER.unpack_from(data, at)
    method, crc, length = TOLD.unpack_from(told, entry)
    fields = at + LOCAL_SIZE + own_length
    end = fields + extra + packed
    return bool(
        magic == LOCAL
        and own_method == method
        and own_length == length
        and end <= stop
        and data[at + LOCAL_SIZE : fields] == told[entry + CENTRAL_SIZE : entry + CENTRAL_SIZE + length]
        and (not extra or (extra >= FIELD.size and FIELD.unpack_from(data, fields)[1] == extra - FIELD.size))
        and (
            not flags & DESCRIBED_BEHIND or data[end : end + len(DESCRIPTOR)] in {DESCRIPTOR, crc.to_bytes(4, "little")}
        )
    )


def _wrong(pages: Pages, told: bytes, entry: int, offset: int, packed: int, stop: int) -> str:  # noqa: PLR0913, PLR0917
    """Return what is wrong with a record of which the directory tells at ``entry``; empty where nothing is."""
    method, crc, length = TOLD.unpack_from(told, entry)
    head = pages.read(offset, LOCAL_SIZE + length, NEAR if stop - offset < PAGE else PAGE)
    if head[: len(LOCAL)] != LOCAL or head[LOCAL_SIZE:] != told[entry + CENTRAL_SIZE : entry + CENTRAL_SIZE + length]:
        return "does not begin where the directory says"
    _, flags, own_method, own_length, extra = HEADER.unpack_from(head)
    end = offset + LOCAL_SIZE + own_length + extra + packed
    if own_length != length or end > stop:
        return "does not end before the next one"
    if own_method != method or not _are_whole(pages.read(offset + LOCAL_SIZE + length, extra)):
        return "is not described where it stands as in the directory"
    if flags & DESCRIBED_BEHIND and pages.read(end, len(DESCRIPTOR)) not in {DESCRIPTOR, crc.to_bytes(4, "little")}:
        return "does not end where the directory says"
    return ""


def _are_whole(fields: bytes) -> bool:
    """Whether extra fields, each of which tells its length, end where they are said to."""
    at = 0
    while at + FIELD.size <= len(fields):
        at += FIELD.size + int(FIELD.unpack_from(fields, at)[1])
    return at == len(fields)
