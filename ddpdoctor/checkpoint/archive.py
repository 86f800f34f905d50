"""Reads the directory of a zip archive, and single small records of it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from ddpdoctor.checkpoint.values import DamagedError, UnreadableError

LOCAL = b"PK\x03\x04"
CENTRAL = b"PK\x01\x02"
END = b"PK\x05\x06"
END64 = b"PK\x06\x06"
LOCATOR64 = b"PK\x06\x07"
END_SIZE, LOCATOR_SIZE, END64_SIZE, CENTRAL_SIZE, LOCAL_SIZE = 22, 20, 56, 46, 30
LONGEST_COMMENT = 0xFFFF
MOST_DIRECTORY = 1 << 26  # a million records
MOST_RECORD = 1 << 29
FULL = 0xFFFFFFFF  # the real number stands in the zip64 field
STORED, DEFLATED = 0, 8


@dataclass(frozen=True, slots=True)
class Record:
    """One file of the archive; ``crc`` is 0 when torch was told not to compute it."""

    name: str
    offset: int
    packed: int
    size: int
    method: int
    crc: int


def directory(file: BinaryIO, size: int) -> dict[str, Record]:
    """Read the central directory.

    Raises:
        DamagedError: there is none, or what it lists is not in the file.
        UnreadableError: it is larger than any real one.
    """
    start, length = _end(file, size)
    if length > MOST_DIRECTORY:
        raise UnreadableError(f"its central directory takes {length} bytes")
    file.seek(start)
    data = file.read(length)
    records: dict[str, Record] = {}
    position = 0
    while data[position : position + 4] == CENTRAL and position + CENTRAL_SIZE <= len(data):
        record, position = _record(data, position)
        if record.offset + LOCAL_SIZE + record.packed > start:
            raise DamagedError(f"the record {record.name} ends behind the bytes that the file holds")
        records[record.name] = record
    if position != len(data) or not records:
        raise DamagedError("the central directory of the zip archive is broken")
    return records


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


def _end(file: BinaryIO, size: int) -> tuple[int, int]:
    """Find where the central directory starts, and its length."""
    tail_at = max(0, size - END_SIZE - LONGEST_COMMENT)
    file.seek(tail_at)
    tail = file.read(END_SIZE + LONGEST_COMMENT)
    at = tail.rfind(END)
    if at < 0 or at + END_SIZE > len(tail):
        raise DamagedError("a zip archive begins here, but the central directory that ends one is missing")
    length, start = struct.unpack_from("<II", tail, at + 12)
    at += tail_at
    if FULL in {start, length} or struct.unpack_from("<H", tail, at - tail_at + 10)[0] == 0xFFFF:  # noqa: PLR2004
        length, start = _end64(file, at)
    if start + length > at:
        raise DamagedError("the central directory of the zip archive lies outside of the file")
    return start, length


def _end64(file: BinaryIO, end: int) -> tuple[int, int]:
    file.seek(max(0, end - LOCATOR_SIZE))
    locator = file.read(LOCATOR_SIZE)
    if locator[:4] != LOCATOR64:
        raise DamagedError("the zip64 directory of the archive is missing")
    at = struct.unpack_from("<Q", locator, 8)[0]
    if at > end - END64_SIZE:
        raise DamagedError("the zip64 directory of the archive lies outside of the file")
    file.seek(at)
    record = file.read(END64_SIZE)
    if record[:4] != END64:
        raise DamagedError("the zip64 directory of the archive is broken")
    length, start = struct.unpack_from("<QQ", record, 40)
    return length, start


def _record(data: bytes, at: int) -> tuple[Record, int]:
    method, _, crc, packed, size = struct.unpack_from("<HIIII", data, at + 10)
    name, extra, comment = struct.unpack_from("<HHH", data, at + 28)
    offset = struct.unpack_from("<I", data, at + 42)[0]
    fields_at = at + CENTRAL_SIZE + name
    after = fields_at + extra + comment
    if after > len(data):
        raise DamagedError("the central directory of the zip archive is cut off")
    wide = iter(_wide_numbers(data[fields_at : fields_at + extra]))
    try:
        size, packed, offset = (next(wide) if each == FULL else each for each in (size, packed, offset))
    except (StopIteration, RuntimeError):
        raise DamagedError("a zip64 field of the archive is missing") from None
    text = data[at + CENTRAL_SIZE : fields_at].decode("utf-8", "replace")
    return Record(text, offset, packed, size, method, crc), after


def _wide_numbers(extra: bytes) -> tuple[int, ...]:
    """Give the numbers of the zip64 field, in the order of the format: size, packed size, offset."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            count = min(length, len(extra) - at - 4) // 8
            return struct.unpack_from(f"<{count}Q", extra, at + 4)
        at += 4 + length
    return ()
