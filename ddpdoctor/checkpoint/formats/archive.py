"""Reads the directory of a zip archive, and single small records of it."""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from ddpdoctor.checkpoint.formats.archive_end import END_SIZE, FULL, end_of
from ddpdoctor.checkpoint.pickles.values import DamagedError, UnreadableError

LOCAL = b"PK\x03\x04"
CENTRAL = b"PK\x01\x02"
CENTRAL_SIZE, LOCAL_SIZE = 46, 30
MOST_DIRECTORY = 1 << 26  # a million records
MOST_RECORD = 1 << 29
STORED, DEFLATED = 0, 8
REFUSED = 0x2061  # bits of the flags: encrypted or a patch, by any method
FOLDER = 0x10  # a bit of the attributes
# Of a central entry: flags, method, CRC, sizes, lengths, disk, attributes, offset.
HEADER = struct.Struct("<8xHH4xIIIHHHH2xII")
FIELD = struct.Struct("<HH")  # of a header's extra fields: kind and length


class Record(NamedTuple):
    """One file of the archive; ``entry`` and ``after`` are where the directory tells of it.

    ``crc`` is 0 when torch was told not to compute it.
    """

    name: str
    offset: int
    packed: int
    size: int
    method: int
    crc: int
    entry: int
    after: int


@dataclass(frozen=True, slots=True)
class Directory:
    """The central directory: where it starts, its bytes, where in them each record is told of, and its end.

    ``sizes``, ``packed`` sizes and ``offsets`` are those of the records, in the order of ``entries``.
    ``end`` are the last 22 bytes of the file and, before them, the locator of a zip64 directory where there is one.
    """

    start: int
    data: bytes
    entries: dict[str, int]
    sizes: Sequence[int]
    packed: Sequence[int]
    offsets: Sequence[int]
    end: bytes

    def record(self, name: str) -> Record:
        """Return a record that is there."""
        return _record(self.data, self.entries[name])

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
    file.seek(start)
    data = file.read(length)
    entries: dict[str, int] = {}
    sizes, packed_sizes, offsets = array("Q"), array("Q"), array("Q")
    position, count = 0, 0
    while position + CENTRAL_SIZE <= len(data) and data.startswith(CENTRAL, position):
        flags, method, _, packed, size, name, extra, comment, disk, attributes, offset = HEADER.unpack_from(
            data, position
        )
        if FULL in (size, packed, offset):
            _, offset, packed, size, *_ = _record(data, position)
        name_at = position + CENTRAL_SIZE
        last = str(data[name_at : name_at + name], "utf-8", "replace")
        entries[last] = position
        sizes.append(size)
        packed_sizes.append(packed)
        offsets.append(offset)
        position, count = name_at + name + extra + comment, count + 1
        if offset + LOCAL_SIZE + packed > start:
            raise DamagedError(f"the record {last} ends behind the bytes that the file holds")
        plain = method == DEFLATED or (method == STORED and packed == size)
        if not plain or flags & REFUSED or disk or (attributes & FOLDER and not last.endswith("/")):
            raise DamagedError(
                f"the directory of the zip archive describes the record {last} in a way that torch refuses"
            )
    if position != len(data) or not entries:
        raise DamagedError("the central directory of the zip archive is broken")
    if len(entries) < count:
        raise DamagedError("the central directory of the zip archive names a record twice")
    if count != told:
        raise DamagedError(f"the central directory of the zip archive has {count} records, its end says {told}")
    return Directory(start, data, entries, sizes, packed_sizes, offsets, end)


def read(file: BinaryIO, record: Record) -> bytes:
    """Read one small record whole.

    Raises:
        DamagedError: its bytes are not those that were written.
        UnreadableError: it is large, or packed in a way that torch does not know.
    """
    if max(record.size, record.packed) > MOST_RECORD:
        raise UnreadableError(f"the record {record.name} takes {record.size} bytes")
    file.seek(record.offset)
    header = file.read(LOCAL_SIZE)
    if len(header) < LOCAL_SIZE or header[:4] != LOCAL:
        raise DamagedError(f"the record {record.name} does not begin where the directory says")
    name, extra = struct.unpack_from("<HH", header, 26)
    file.seek(record.offset + LOCAL_SIZE + name + extra)
    data = file.read(record.packed)
    if record.method == DEFLATED:
        data = _inflated(data, record)
    elif record.method != STORED:
        raise UnreadableError(f"the record {record.name} is packed by method {record.method}")
    if len(data) != record.size:
        raise DamagedError(f"the record {record.name} has {len(data)} bytes, its directory says {record.size}")
    if record.crc and zlib.crc32(data) != record.crc:
        raise DamagedError(f"the CRC-32 of {record.name} is {zlib.crc32(data):08x}, written was {record.crc:08x}")
    return data


def _inflated(data: bytes, record: Record) -> bytes:
    try:
        return zlib.decompressobj(-15).decompress(data, record.size + 1)
    except zlib.error as exc:
        raise DamagedError(f"the record {record.name} cannot be unpacked: {exc}") from None


def _record(data: bytes, at: int) -> Record:
    _, method, crc, packed, size, name, extra, comment, _, _, offset = HEADER.unpack_from(data, at)
    fields_at = at + CENTRAL_SIZE + name
    text = str(data[at + CENTRAL_SIZE : fields_at], "utf-8", "replace")
    after = fields_at + extra + comment
    if after > len(data):
        raise DamagedError("the central directory of the zip archive is cut off")
    if FULL in (size, packed, offset):
        wide = iter(_wide_numbers(data[fields_at : fields_at + extra]))
        try:
            size, packed, offset = [next(wide) if each == FULL else each for each in (size, packed, offset)]
        except StopIteration:
            raise DamagedError("a zip64 field of the archive is missing") from None
    return Record(text, offset, packed, size, method, crc, at, after)


def _wide_numbers(extra: bytes) -> tuple[int, ...]:
    """Return the numbers of the zip64 field, in the order of the format: size, packed size, offset."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = FIELD.unpack_from(extra, at)
        if kind == 1:
            count = min(length, len(extra) - at - 4) // 8
            return struct.unpack_from(f"<{count}Q", extra, at + 4)
        at += 4 + length
    return ()
