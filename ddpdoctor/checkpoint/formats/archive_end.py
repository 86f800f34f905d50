"""Reads what ends a zip archive: where its central directory is, and how many records that has."""

from __future__ import annotations

import struct
from typing import BinaryIO

from ddpdoctor.checkpoint.pickles.values import DamagedError

END = b"PK\x05\x06"
END64 = b"PK\x06\x06"
LOCATOR64 = b"PK\x06\x07"
END_SIZE, LOCATOR_SIZE, END64_SIZE = 22, 20, 56
LONGEST_COMMENT = 0xFFFF
FULL = 0xFFFFFFFF  # the real number stands in the zip64 field
MOST_RECORDS = 0xFFFF  # likewise


def end_of(file: BinaryIO, size: int) -> tuple[int, int, int, bytes]:
    """Find where the central directory starts, its length, its number of records, and what ends the file.

    Raises:
        DamagedError: there is none, or none that torch reads.
    """
    tail_at = max(0, size - END_SIZE - LONGEST_COMMENT)
    file.seek(tail_at)
    tail = file.read(END_SIZE + LONGEST_COMMENT)
    at = tail.rfind(END)
    if at < 0 or at + END_SIZE > len(tail):
        raise DamagedError("a zip archive begins here, but the central directory that ends one is missing")
    disk, other, some, count, length, start = struct.unpack_from("<HHHHII", tail, at + 4)
    end = tail[at : at + END_SIZE]
    at += tail_at
    if wide := _end64(file, at):
        some, count, length, start, locator = wide
        end = locator + end
    elif FULL in {start, length} or count == MOST_RECORDS:
        raise DamagedError("the zip64 directory of the archive is missing")
    if start + length > at:
        raise DamagedError("the central directory of the zip archive lies outside of the file")
    if disk or other or some != count:
        raise DamagedError("the zip archive is one of several disks, which torch does not read")
    return start, length, count, end


def _end64(file: BinaryIO, end: int) -> tuple[int, int, int, int, bytes] | None:
    """Read the zip64 directory's counts, length and start, if there is one: torch writes it for small files, too."""
    file.seek(max(0, end - LOCATOR_SIZE))
    locator = file.read(LOCATOR_SIZE)
    if locator[:4] != LOCATOR64:
        return None
    at = struct.unpack_from("<Q", locator, 8)[0]
    if at > end - END64_SIZE:
        raise DamagedError("the zip64 directory of the archive lies outside of the file")
    file.seek(at)
    record = file.read(END64_SIZE)
    if record[:4] != END64 or len(record) < END64_SIZE:
        raise DamagedError("the zip64 directory of the archive is broken")
    own, disk, other, some, count, length, start = struct.unpack("<4xQ4xIIQQQQ", record)
    if own < END64_SIZE - 12 or disk or other or locator[16:] != b"\1\0\0\0":
        raise DamagedError("the zip64 directory of the archive is none that torch reads")
    return some, count, length, start, locator
