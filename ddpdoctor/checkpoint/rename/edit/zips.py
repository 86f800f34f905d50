"""Puts another data.pkl into the zip archive of torch.save: the record is appended, the directory written anew.

Records are found by the directory alone, so that all others, the tensors among them, stay where they are. Source: the
ZIP file format specification (APPNOTE.TXT 6.3.10), 4.3.7 to 4.3.16; torch's reader, miniz, looks for the end of the
directory in the last 64 KiB of the file.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.formats import archive_record
from ddpdoctor.checkpoint.formats.archive_end import END, END64, END_SIZE, FULL, LOCATOR64, LOCATOR_SIZE, MOST_RECORDS
from ddpdoctor.checkpoint.rename.splice import Growth, Splice

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.formats.archive import Directory
    from ddpdoctor.checkpoint.formats.archive_record import Record

PAGE = 4096
ENDING = LOCATOR_SIZE + END_SIZE
WIDE = 1  # the number of the zip64 field
ZIP64 = 45  # version 4.5 of the format
IN_UTF8 = 0x800
VERSION_AT = 4  # in a central entry


def rebuilt(path: str, size: int, directory: Directory, record: Record, data: bytes) -> Splice:
    """Return the change for a copy: the directory makes room for the record, and follows it."""
    return Splice(path, size, directory.start, size, _appended(directory, record, data, directory.start))


def grown(path: str, size: int, directory: Directory, record: Record, data: bytes) -> Growth:
    """Return the change in place: all that was there stays, the old directory, too."""
    start = size
    while True:
        appended = _appended(directory, record, data, start)
        if (start + len(appended) - ENDING) % PAGE + ENDING <= PAGE:
            break
        start += ENDING  # zeros that nothing refers to keep the last bytes within a page
    appended = bytes(start - size) + appended
    return Growth(path, size, appended, directory.end.rjust(ENDING, b"\0"), appended[-ENDING:])


def _appended(directory: Directory, record: Record, data: bytes, at: int) -> bytes:
    """Return the record, the directory, and what ends it, for the position ``at``."""
    crc = zlib.crc32(data)
    entry = directory.data[record.entry : record.after]
    local = _local(entry, data, crc)
    central = b"".join(
        [directory.data[: record.entry], _central(entry, len(data), crc, at), directory.data[record.after :]]
    )
    start = at + len(local) + len(data)
    return b"".join([local, data, central, _end(directory, len(directory.positions), len(central), start)])


def _local(entry: bytes, data: bytes, crc: int) -> bytes:
    flags, moment, name = _described(entry)
    sizes = struct.pack("<III", crc, len(data), len(data))
    version = struct.pack("<H", ZIP64)
    return b"".join(
        [archive_record.LOCAL, version, flags, b"\0\0", moment, sizes, struct.pack("<HH", len(name), 0), name]
    )  # stored, without extra fields


def _central(entry: bytes, size: int, crc: int, offset: int) -> bytes:
    flags, moment, name = _described(entry)
    wide = offset >= FULL
    extra = struct.pack("<HHQ", WIDE, 8, offset) if wide else b""
    return b"".join(
        [
            archive_record.CENTRAL,
            entry[VERSION_AT : VERSION_AT + 2],
            struct.pack("<H", ZIP64),
            flags,
            b"\0\0",
            moment,
            struct.pack("<III", crc, size, size),
            struct.pack("<HHH", len(name), len(extra), 0),
            bytes(8),  # disk, attributes
            struct.pack("<I", FULL if wide else offset),
            name,
            extra,
        ]
    )


def _described(entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the flags that hold for the new record, the time, and the name."""
    flags = struct.unpack_from("<H", entry, 8)[0] & IN_UTF8
    name = struct.unpack_from("<H", entry, 28)[0]
    return (
        struct.pack("<H", flags),
        entry[12:16],
        entry[archive_record.CENTRAL_SIZE : archive_record.CENTRAL_SIZE + name],
    )


def _end(directory: Directory, count: int, length: int, start: int) -> bytes:
    wide = directory.wide or start + length >= FULL or count >= MOST_RECORDS
    shown = min(count, MOST_RECORDS)
    end = END + struct.pack("<HHHHIIH", 0, 0, shown, shown, min(length, FULL), min(start, FULL) if wide else start, 0)
    if not wide:
        return end
    end64 = END64 + struct.pack("<QHHIIQQQQ", 44, ZIP64, ZIP64, 0, 0, count, count, length, start)
    locator = LOCATOR64 + struct.pack("<IQI", 0, start + length, 1)
    return end64 + locator + end
