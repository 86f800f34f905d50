"""What a data set holds, as a digest that ranks can compare: read from its attributes, no sample is fetched."""

from __future__ import annotations

import dis
import hashlib
import os
import sys
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from ddpdoctor.examine.loader.generators import kinds
from ddpdoctor.watch.events import Site
from ddpdoctor.watch.rank.data.index_digest import rows_of
from ddpdoctor.watch.user_frames import file_of, is_users

LOOKS = 16  # elements of a list, rows of an array
VALUES = 64  # numbers of a row
DEEPEST = 6


class CannotTellError(Exception):
    """A data set holds something that may decide what a sample is, and that cannot be compared."""


def contents(dataset: Any) -> str:
    """Digest what decides which sample an index is; empty where that cannot be told."""
    try:
        length = len(dataset)
        sketch = _sketch(dataset)
    except Exception:  # noqa: BLE001 - CannotTellError, or what containers of the user's own raise
        return ""
    return digest(sketch) if any(size >= length for size in _sizes(sketch)) else ""


def digest(value: Any) -> str:
    """Return a short hash of plain values."""
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def sketch_of_batch(value: Any, depth: int = 0) -> Any:
    """Return what a batch holds here and there; nothing is read from a device other than the CPU."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided:
            return tuple(value.shape)
        flat = value.detach().flatten()
        return (tuple(value.shape), flat[:: (len(flat) // VALUES) | 1][:VALUES].tolist())
    if depth > 3:  # noqa: PLR2004 - deeper than batches are
        return type(value).__name__
    if isinstance(value, dict):
        return [(str(key), sketch_of_batch(each, depth + 1)) for key, each in list(value.items())[:16]]
    if isinstance(value, (list, tuple)):
        return [sketch_of_batch(each, depth + 1) for each in value[:16]]
    return value if isinstance(value, (int, float, str, bytes, bool, type(None))) else type(value).__name__


def sums_of_rows(batch: Any, depth: int = 0) -> list[int]:
    """Return a checksum of each sample of a batch: of its first tensor on the CPU with several numbers a sample."""
    import torch

    if isinstance(batch, torch.Tensor):
        if batch.device.type != "cpu" or batch.layout is not torch.strided or batch.ndim <= 1 or batch[:1].numel() <= 1:
            return []
        return [crc32(row) for row in rows_of(batch.detach().flatten(1)[:, :VALUES])]
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)) and depth <= 3:  # noqa: PLR2004 - deeper than batches are
        return next((found for each in batch[:8] if (found := sums_of_rows(each, depth + 1))), [])
    return []


def reader(dataset: Any, *, iterable: bool) -> Site | None:
    """Return the user's method that yields, or fetches, the samples."""
    code = getattr(getattr(type(dataset), "__iter__" if iterable else "__getitem__", None), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return Site(file_of(code), code.co_firstlineno, code.co_name)


def plain(dataset: Any) -> dict[str, Any]:
    """Return the numbers that a data set has as attributes, and that its ``__iter__`` or ``__getitem__`` reads."""
    codes = [getattr(getattr(type(dataset), name, None), "__code__", None) for name in ("__iter__", "__getitem__")]
    read = {name for code in codes if code is not None for name in code.co_names}
    held = getattr(dataset, "__dict__", {})
    return {name: value for name, value in held.items() if name in read and type(value) in (int, float)}


def _reads_its_index(dataset: Any) -> bool:
    """Whether ``__getitem__``, if there is one, looks at the index: one that draws at random does not."""
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or code.co_argcount < 2:  # noqa: PLR2004 - self and the index
        return True
    index = code.co_varnames[1]
    return index in code.co_cellvars or any(
        index in (each.argval if isinstance(each.argval, tuple) else (each.argval,))
        for each in dis.get_instructions(code)
        if each.opname.startswith("LOAD_FAST")
    )


def _sketch(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, range)):
        return value
    if depth > DEEPEST:
        raise CannotTellError
    if isinstance(value, (list, tuple)):
        return ("list", len(value), [_sketch(value[at], depth + 1) for at in _places(len(value))])
    if isinstance(value, dict):
        first = [key for key, _ in zip(value, range(LOOKS), strict=False)]
        return ("dict", len(value), [(str(key), _sketch(value[key], depth + 1)) for key in first])
    if hasattr(value, "iloc"):  # a table of pandas
        return ("array", len(value), value.iloc[_places(len(value))].to_csv())
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    return _object(value, depth)


def _object(value: Any, depth: int) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if _decides_nothing(value):
        return type(value).__name__
    if isinstance(fingerprint := getattr(value, "_fingerprint", None), str):  # a data set of Hugging Face
        return ("array", len(value), fingerprint)
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or not _in_python(type(value)) or not _reads_its_index(value):
        raise CannotTellError
    return (type(value).__name__, [(name, _sketch(attributes[name], depth + 1)) for name in sorted(attributes)])


def _in_python(kind: type) -> bool:
    """Whether all that an object of a class holds stands in its ``__dict__``: none of its classes is compiled."""
    modules = {each.__module__ for each in kind.__mro__ if each is not object}
    files = [getattr(sys.modules.get(name), "__file__", None) or ".py" for name in modules]
    return not modules & set(sys.builtin_module_names) and all(file.endswith(".py") for file in files)


def _array(value: Any) -> Any:
    """Sketch a tensor on the CPU, an array of numpy or a column of pandas."""
    shape = tuple(value.shape)
    if getattr(getattr(value, "device", "cpu"), "type", "cpu") != "cpu" or getattr(value, "is_sparse", False):
        raise CannotTellError
    rows = [value[at].flatten() for at in _places(shape[0])] if len(shape) > 1 else []
    numbers = (
        [row[:: (len(row) // VALUES) | 1][:VALUES].tolist() for row in rows]
        if rows
        else [value[at].item() for at in _places(shape[0])]
        if shape
        else value.item()
    )
    return ("array", shape[0] if shape else 0, str(value.dtype), shape, numbers)


def _decides_nothing(value: Any) -> bool:
    """Whether an attribute is a transform, a generator, a lock or a logger: it picks no sample."""
    return (
        callable(value) or isinstance(value, (*kinds(), type(sys))) or type(value).__module__ in {"_thread", "logging"}
    )


def _places(length: int) -> list[int]:
    """Return the places at which a long sequence is looked at: the same on each rank, without a period."""
    if length <= LOOKS:
        return list(range(length))
    return [*(place * 2654435761 % length for place in range(LOOKS - 1)), length - 1]


def _sizes(sketch: Any) -> Iterator[int]:
    """Yield the lengths of what holds samples: arrays that are not one index a sample, and lists of more than numbers.

    A list or an array of whole numbers may be indices of samples that are made as they are asked for.
    """
    match sketch:
        case ("array", int(length), str(dtype), tuple(shape), list(numbers)):
            indices = len(shape) == 1 and "int" in dtype
            yield length // 4 if indices else length if len(set(map(repr, numbers))) > 1 else 0
        case ("array", int(length), str()):
            yield length
        case ("list", int(length), list(values)):
            if not all(isinstance(value, int) for value in values) and len(set(map(repr, values))) > 1:
                yield length
            for value in values:
                yield from _sizes(value)
        case ("dict", int(length), list(pairs)):
            yield length
            for _, value in pairs:
                yield from _sizes(value)
        case (str(), list(attributes)):
            for _, value in attributes:
                yield from _sizes(value)
