"""Sees whether each record of a zip archive is where its directory says, by the header that stands before it."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import BinaryIO

from ddpdoctor.checkpoint.archive import CENTRAL_SIZE, FIELD, LOCAL, LOCAL_SIZE, Directory, Record
from ddpdoctor.checkpoint.values import DamagedError

PAGE = 4096
DESCRIBED_BEHIND = 0x8  # a bit of the flags: sizes and CRC-32 stand behind the record, too
DESCRIPTOR = b"PK\x07\x08"
HEADER = struct.Struct("<4s2xHH16xHH")  # magic, flags, method, lengths of name and extra fields


@dataclass(slots=True)
class Pages:
    """Reads short parts of a file in rising order, a page at a time."""

    descriptor: int
    start: int = 0
    data: bytes = b""

    def read(self, at: int, length: int) -> bytes:
        """Return so many bytes from a position, fewer at the end of the file."""
        if not self.start <= at <= at + length <= self.start + len(self.data):
            self.start, self.data = at, os.pread(self.descriptor, max(length, PAGE), at)
        return self.data[at - self.start : at - self.start + length]


def reach(file: BinaryIO, directory: Directory) -> None:
    """See that each record is where the directory says, and ends before the next one: its own header tells, too.

    Raises:
        DamagedError: it is not so.
    """
    pages = Pages(file.fileno())
    records = sorted((directory.record(name) for name in directory.entries), key=lambda record: record.offset)
    stops = [*(record.offset for record in records[1:]), directory.start]
    for record, stop in zip(records, stops, strict=True):
        _reach(pages, directory, record, stop)


def _reach(pages: Pages, directory: Directory, record: Record, stop: int) -> None:
    name_at = record.entry + CENTRAL_SIZE
    name = directory.data[name_at : name_at + struct.unpack_from("<H", directory.data, record.entry + 28)[0]]
    head = pages.read(record.offset, LOCAL_SIZE + len(name))
    if head[: len(LOCAL)] != LOCAL or head[LOCAL_SIZE:] != name:
        raise DamagedError(f"the record {record.name} does not begin where the directory says")
    _, flags, method, length, extra = HEADER.unpack_from(head)
    end = record.offset + LOCAL_SIZE + length + extra + record.packed
    if length != len(name) or end > stop:
        raise DamagedError(f"the record {record.name} does not end before the next one")
    fields = pages.read(record.offset + LOCAL_SIZE + length, extra)
    if method != record.method or not _are_whole(fields):
        raise DamagedError(f"the record {record.name} is not described where it stands as in the directory")
    if flags & DESCRIBED_BEHIND and pages.read(end, len(DESCRIPTOR)) not in {
        DESCRIPTOR,
        record.crc.to_bytes(4, "little"),
    }:
        raise DamagedError(f"the record {record.name} does not end where the directory says")


def _are_whole(fields: bytes) -> bool:
    """Whether extra fields, each of which tells its length, end where they are said to."""
    at = 0
    while at + FIELD.size <= len(fields):
        at += FIELD.size + int(FIELD.unpack_from(fields, at)[1])
    return at == len(fields)
