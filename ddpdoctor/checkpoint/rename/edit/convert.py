"""Writes the tensors of a file of torch.save as a safetensors file: bytes are copied, none is read into a tensor.

Source: the format of safetensors (a length, a JSON header, the tensors one after the other) and torch's
torch/_utils.py, ``_rebuild_tensor_v2``: storage, offset, size and stride, in elements.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkpoint.formats import archive_record
from ddpdoctor.checkpoint.formats.safetensors import DTYPES
from ddpdoctor.checkpoint.formats.torchfile import Pickled
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.tensors import ITEM_SIZES, tensor_of
from ddpdoctor.checkpoint.pickles.values import Object, Reference, pairs_of
from ddpdoctor.checkpoint.reader import opened
from ddpdoctor.checkpoint.rename.files import copy_range, write_at
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile

NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 8  # the header is padded with blanks to a multiple of this
PARAMETERS = {"_rebuild_parameter", "_rebuild_parameter_with_state"}
PLAIN = {"_rebuild_tensor": 6, "_rebuild_tensor_v2": 6, "_rebuild_tensor_v3": 7}
"""Each with the place of an argument that says in which other way the bytes are to be read: conjugated, negated."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor: where its bytes begin in the file, how many they are, and what the header says of them."""

    key: str
    start: int
    size: int
    dtype: str
    shape: tuple[int, ...]


def refuse_conversion(file: CheckpointFile) -> None:
    """Refuse a file that safetensors has no place for.

    Raises:
        BadTarget: it holds something beside the tensors of one state dict.
    """
    if [each.location for each in file.state_dicts] != [()]:
        held = ", ".join(item.key for item in file.items[:8])
        raise BadTarget(
            f"{file.path} cannot become a safetensors file, which holds one state dict and no more: it holds {held}"
        )
    if others := file.state_dicts[0].others:
        raise BadTarget(f"{file.path} cannot become a safetensors file: {', '.join(others[:8])} is no tensor")


def fill_from(path: str, new: Mapping[str, str]) -> Callable[[int], None]:
    """Return what fills a new file with the tensors of a file of torch.save, ``new`` names by old ones.

    Raises:
        BadTarget: two of them share memory, or one is not stored as safetensors stores tensors.
    """
    pieces = list(_pieces(path))
    _refuse_shared(path, pieces)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for each in pieces:
        offsets = [end, end := end + each.size]
        header[new.get(each.key, each.key)] = {"dtype": each.dtype, "shape": each.shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)

    def fill(target: int) -> None:
        write_at(target, 0, struct.pack("<Q", len(text)) + text)
        at = 8 + len(text)
        source = os.open(path, os.O_RDONLY)
        try:
            for each in pieces:
                copy_range(source, each.start, target, at, each.size)
                at += each.size
        finally:
            os.close(source)

    return fill


def _pieces(path: str) -> Iterator[Piece]:
    inside = opened(path, [()]).inside
    if not isinstance(inside, Pickled) or inside.directory is None or inside.record is None:
        raise BadTarget(f"{path} was changed while it was looked at")
    folder = inside.record.name.removesuffix("data.pkl")
    root, _ = interpret(inside.data, inside.start, quick=False)
    with Path(path).open("rb") as file:
        if f"{folder}byteorder" in inside.directory:
            order = archive_record.read(file, inside.directory.record(f"{folder}byteorder"))
            if order != b"little":
                raise BadTarget(f"{path} cannot become a safetensors file: its byte order is {order.decode()}")
        for key, value in pairs_of(root) or ():
            storage, offset, stride, other = _place(value) or (None, 0, (), False)
            known, named = tensor_of(value), storage.storage if storage else None
            if known is None or named is None or known.dtype not in NAMES:
                dtype = known.dtype if known else "something else"
                raise BadTarget(f"{path} cannot become a safetensors file: {key} is {dtype}, stored in another way")
            if other:
                raise BadTarget(
                    f"{path} cannot become a safetensors file: {key} is a conjugate or negative view; "
                    "save it with .resolve_conj().resolve_neg()"
                )
            size = math.prod(known.shape)
            if size and not _is_in_order(known.shape, stride):
                raise BadTarget(
                    f"{path} cannot become a safetensors file: the elements of {key} are not in their order "
                    f"(shape {list(known.shape)}, strides {list(stride)}); save it with .contiguous()"
                )
            record = inside.directory.record(f"{folder}data/{named[1]}")
            if record.method != archive_record.STORED:
                raise BadTarget(f"{path} cannot become a safetensors file: its records are packed")
            item = ITEM_SIZES[known.dtype]
            start = _data(file, record) + offset * item
            yield Piece(str(key), start, size * item, NAMES[known.dtype], known.shape)


def _place(value: Any) -> tuple[Reference, int, tuple[int, ...], bool] | None:
    """Return the storage of a plain tensor, or of a parameter; where it begins there, and its strides.

    Last comes whether it is a view whose values are not the bytes: ``tensor.conj()``.
    """
    if not isinstance(value, Object):
        return None
    match value.kind.rpartition(".")[2], value.args:
        case name, (data, *_) if name in PARAMETERS:
            return _place(data)
        case name, (Reference() as storage, int(offset), _, [*stride], *rest) if name in PLAIN:
            return storage, offset, tuple(stride), any(map(bool, rest[PLAIN[name] - 4 :]))
        case _:
            return None


def _is_in_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _data(file: Any, record: archive_record.Record) -> int:
    """Return where the bytes of a record begin: its header has its own lengths of name and padding."""
    file.seek(record.offset)
    name, extra = struct.unpack_from("<HH", file.read(archive_record.LOCAL_SIZE), 26)
    return int(record.offset + archive_record.LOCAL_SIZE + name + extra)


def _refuse_shared(path: str, pieces: list[Piece]) -> None:
    order = sorted((each for each in pieces if each.size), key=lambda each: each.start)
    for one, other in pairwise(order):
        if other.start < one.start + one.size:
            raise BadTarget(
                f"{path} cannot become a safetensors file: {one.key} and {other.key} share memory (tied weights), "
                f"which the format cannot say; drop one of them before saving, or use safetensors.torch.save_model"
            )
