"""Tells what kind of file a checkpoint is, and has it read."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ddpdoctor.check import BadTarget
from ddpdoctor.checkpoint import safetensors, torchfile
from ddpdoctor.checkpoint.contents import CheckpointFile, Format

HEAD = 4096
MAGICS = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes"),
    (b"\x93NUMPY", "a NumPy array (.npy)"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"GGUF", "a GGUF model"),
    (b"\x7fELF", "an executable"),
    (b"%PDF", "a PDF document"),
)
TAR = 257  # where the magic of a tar archive stands
PROTO, PROTOCOLS = 0x80, {b"\2", b"\3", b"\4", b"\5"}
POINTER = b"version https://git-lfs.github.com/spec/"
TEXT = frozenset(range(32, 127)) | {9, 10, 13}
PAGES = (b"<!doctype html", b"<html", b"<?xml", b"<head")


def read(path: str | os.PathLike[str]) -> CheckpointFile:
    """Look at a checkpoint: its pickle is not run, its tensors are not read.

    A file that is damaged, or no checkpoint at all, is described as that.

    Raises:
        BadTarget: there is no such file, it cannot be opened, or it is a directory that is no checkpoint.
    """
    text = os.fspath(path)
    try:
        if Path(text).is_dir():
            return _directory(text)
        if not Path(text).is_file():
            raise BadTarget(f"--checkpoint: there is no file {text}")
        with Path(text).open("rb") as file, _paused_collector():
            return _sniffed(file, text, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError) as exc:
        raise BadTarget(f"--checkpoint: {text} cannot be read: {getattr(exc, 'strerror', '') or exc}") from None


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Keep the garbage collector from walking, again and again, the millions of values of a large pickle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _directory(path: str) -> CheckpointFile:
    metadata = Path(path) / ".metadata"
    if metadata.is_file():
        return CheckpointFile(
            path, Format.DCP, metadata.stat().st_size, opaque="the keys of a DCP directory are not read"
        )
    names = sorted(
        each.name for each in Path(path).iterdir() if each.suffix in {".bin", ".ckpt", ".pt", ".pth", ".safetensors"}
    )
    offer = f"; name one of its files: {', '.join(names[:5])}" if names else ", and holds no checkpoint file"
    raise BadTarget(f"--checkpoint: {path} is a directory without the .metadata of a distributed checkpoint{offer}")


def _sniffed(file: BinaryIO, path: str, size: int) -> CheckpointFile:
    head = file.read(HEAD)
    blank = CheckpointFile(path, Format.OTHER, size)
    if head.startswith(b"PK"):
        return torchfile.read_zip(file, blank)
    if start := torchfile.magic_end(head):
        return torchfile.read_legacy(file, start, blank)
    if safetensors.looks_like(head, size):
        return safetensors.read_safetensors(file, blank)
    return _foreign(path, head, size)


def _foreign(path: str, head: bytes, size: int) -> CheckpointFile:
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
    """Give the first line that begins so, printable and short."""
    line = next((line for line in head.splitlines() if line.startswith(start)), b"")
    return "".join(char for char in line.decode("utf-8", "replace") if char.isprintable())[:80]
