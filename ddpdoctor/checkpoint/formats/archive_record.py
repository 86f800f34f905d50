"""One record of a zip archive: what the directory tells of it, and its bytes."""

from __future__ import annotations

import mmap
import struct
import zlib
from typing import BinaryIO, NamedTuple

from ddpdoctor.checkpoint.formats.archive_end import FULL
from ddpdoctor.checkpoint.pickles.values import DamagedError, UnreadableError

LOCAL = b"PK\x03\x04"
CENTRAL = b"PK\x01\x02"
CENTRAL_SIZE, LOCAL_SIZE = 46, 30
MOST_RECORD = 1 << 29
LARGE = 1 << 22
STORED, DEFLATED = 0, 8
# Of a central entry: flags, method, CRC, sizes, lengths, disk, attributes, offset.
HEADER = struct.Struct("<8xHH4xIIIHHHH2xII")
NAME_LENGTH = struct.Struct("<28xH")
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


def name_at(data: bytes, at: int) -> str:
    """Return the name of the record that a directory tells of here."""
    stop = at + CENTRAL_SIZE + NAME_LENGTH.unpack_from(data, at)[0]
    return str(data[at + CENTRAL_SIZE : stop], "utf-8", "replace")


def read(file: BinaryIO, record: Record) -> bytes:
    """Read one small record whole; as ``read_apart``."""
    data = read_apart(file, record, MOST_RECORD)
    return data if isinstance(data, bytes) else data[:]


def read_apart(file: BinaryIO, record: Record, most: int = LARGE) -> bytes | mmap.mmap:
    """Read one record whole; one of more than ``most`` bytes into pages whose memory can be given back.

    They are no pages of the file, which ends a process that reads them where it is cut meanwhile.

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
    data: bytes | mmap.mmap
    if record.method == STORED and record.packed > most:
        data = mmap.mmap(-1, record.packed)
        if file.readinto(data) != record.packed:  # type: ignore[attr-defined]  # a file that was opened is a BufferedReader
            data = b""
    else:
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


def _inflated(data: bytes | mmap.mmap, record: Record) -> bytes:
    try:
        return zlib.decompressobj(-15).decompress(data, record.size + 1)
    except zlib.error as exc:
        raise DamagedError(f"the record {record.name} cannot be unpacked: {exc}") from None


def record_at(data: bytes, at: int) -> Record:
    """Return the record that a directory tells of here.

    Raises:
        DamagedError: what is told is cut off.
    """
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
