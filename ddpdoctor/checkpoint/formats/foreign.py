"""Tells what a file is that is no checkpoint."""

from __future__ import annotations

from ddpdoctor.checkpoint.contents import CheckpointFile, Format

MAGICS = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes"),
    (b"\x93NUMPY", "a NumPy array (.npy)"),
    (b"\x1f\x8b", "compressed by gzip: unpack it"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it"),
    (b"BZh", "compressed by bzip2: unpack it"),
    (b"\xfd7zXZ\x00", "compressed by xz: unpack it"),
    (b"GGUF", "a GGUF model"),
    (b"\x7fELF", "an executable"),
    (b"%PDF", "a PDF document"),
)
TAR = 257  # where the magic of a tar archive stands
PROTO, PROTOCOLS = 0x80, {b"\2", b"\3", b"\4", b"\5"}
POINTER = b"version https://git-lfs.github.com/spec/"
TEXT = frozenset(range(32, 127)) | {9, 10, 13}
PAGES = (b"<!doctype html", b"<html", b"<?xml", b"<head")


def foreign(path: str, head: bytes, size: int) -> CheckpointFile:
    """Describe what is no checkpoint."""
    if size and not head.strip(b"\0"):
        zeros = f"its first {len(head)} bytes are zero: space was taken for it, the contents never arrived"
        return CheckpointFile(path, Format.TORCH, size, damage=zeros)
    if head[TAR : TAR + 5] == b"ustar":
        return CheckpointFile(
            path, Format.LEGACY, size, opaque="a tar archive, as torch wrote before 0.1.10, is not read"
        )
    kind, label = _kind(head)
    return CheckpointFile(path, kind, size, label=label)


def _kind(head: bytes) -> tuple[Format, str]:
    known = next((label for magic, label in MAGICS if head.startswith(magic)), "")
    if not head:
        kind, label = Format.EMPTY, ""
    elif head.startswith(POINTER):
        kind, label = Format.LFS, _line(head, b"oid")
    elif head.lstrip().lower().startswith(PAGES):
        kind, label = Format.HTML, _line(head.lstrip(), b"")
    elif head[0] == PROTO and head[1:2] in PROTOCOLS:
        kind, label = Format.PICKLE, ""
    elif not known and all(byte in TEXT for byte in head):
        kind, label = Format.TEXT, _line(head, b"")
    else:
        kind, label = Format.OTHER, known or f"its first bytes are {head[:8].hex(' ')}"
    return kind, label


def _line(head: bytes, start: bytes) -> str:
    """Return the first line that begins so, printable and short."""
    line = next((line for line in head.splitlines() if line.startswith(start)), b"")
    return "".join(char for char in line.decode("utf-8", "replace") if char.isprintable())[:80]
