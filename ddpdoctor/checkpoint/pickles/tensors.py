"""Recognises the calls by which torch rebuilds a tensor, and reads shape and dtype from their arguments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ddpdoctor.checkpoint.pickles.values import Name, Object, Reference, Tensor

STORAGES = {
    "BFloat16Storage": ("bfloat16", 2),
    "BoolStorage": ("bool", 1),
    "ByteStorage": ("uint8", 1),
    "CharStorage": ("int8", 1),
    "ComplexDoubleStorage": ("complex128", 16),
    "ComplexFloatStorage": ("complex64", 8),
    "DoubleStorage": ("float64", 8),
    "FloatStorage": ("float32", 4),
    "HalfStorage": ("float16", 2),
    "IntStorage": ("int32", 4),
    "LongStorage": ("int64", 8),
    "QInt32Storage": ("qint32", 4),
    "QInt8Storage": ("qint8", 1),
    "QUInt8Storage": ("quint8", 1),
    "ShortStorage": ("int16", 2),
    "UntypedStorage": ("uint8", 1),
}
ITEM_SIZES = {
    **dict(STORAGES.values()),
    "complex32": 4,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}  # bytes of an element
SHARDED = {
    "torch.distributed._shard.sharded_tensor.api.ShardedTensor",
    "torch.distributed.tensor.DTensor",
    "torch.distributed._tensor.api.DTensor",
    "torch.distributed.tensor.api.DTensor",
}
DEEPEST = 8  # a parameter of a subclass of a quantised tensor is three calls deep
MOST_PARTS = 5  # of a sparse tensor


def tensor_of(value: Any, depth: int = 0) -> Tensor | None:  # noqa: C901, PLR0911, PLR0912 - a case for each function of torch's
    """Read the tensor that a call would rebuild; None when the call makes no tensor."""
    if isinstance(value, Tensor):
        return value
    if depth > DEEPEST or not isinstance(value, Object):
        return None
    if value.kind in SHARDED:
        return Tensor((), "", sharded=True)
    match value.kind.rpartition(".")[2], value.args:
        case "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_qtensor", (Reference() as storage, _, size, *_):
            return _tensor(size, _storage_dtype(storage))
        case "_rebuild_tensor_v3", (Reference(), _, size, _, _, _, dtype, *_):
            return _tensor(size, dtype_of(dtype))
        case "_rebuild_parameter" | "_rebuild_parameter_with_state" | "Parameter" | "Buffer", (data, *_):
            return tensor_of(data, depth + 1)
        case "_rebuild_from_type" | "_rebuild_from_type_v2", (Name() as maker, kind, args, *_):
            return _typed(Object(maker, args), kind, depth)
        case "_rebuild_meta_tensor_no_storage", (dtype, size, *_):
            return _tensor(size, dtype_of(dtype))
        case "_rebuild_wrapper_subclass", (kind, dtype, size, *_):
            return _tensor(size, dtype_of(dtype), sharded=isinstance(kind, Name) and kind.full in SHARDED)
        case "_rebuild_sparse_tensor", (_, (*parts,)) if depth < DEEPEST:
            return _sparse(parts)
        case "_rebuild_device_tensor_from_cpu_tensor", (data, dtype, *_):
            inner = tensor_of(data, depth + 1)
            return inner and Tensor(inner.shape, dtype_of(dtype))
        case "_rebuild_device_tensor_from_numpy", (Object(state=(_, size, *_)), dtype, *_):
            return _tensor(size, dtype_of(dtype))
        case _:
            return None


def storage_bytes(storage: tuple[str, int]) -> int | None:
    """Return the size of a storage of a class and a number of elements; None when the class is unknown."""
    known = STORAGES.get(storage[0])
    return known and known[1] * storage[1]


def _typed(value: Object, kind: Any, depth: int) -> Tensor | None:
    inner = tensor_of(value, depth + 1)
    sharded = isinstance(kind, Name) and kind.full in SHARDED
    return inner and Tensor(inner.shape, inner.dtype, inner.sharded or sharded)


def _sparse(parts: list[Any]) -> Tensor | None:
    """Read a sparse tensor: the size follows the indices and the values, of which the values come last.

    These are plain tensors, so nothing is looked at further down: the work would multiply at each level.
    """
    parts = parts[:MOST_PARTS]
    for before, size in pairwise(parts):
        if (values := tensor_of(before, DEEPEST)) and (shape := shape_of(size)) is not None:
            return Tensor(shape, values.dtype)
    return None


def _tensor(size: Any, dtype: str, *, sharded: bool = False) -> Tensor | None:
    shape = shape_of(size)
    return None if shape is None or not dtype else Tensor(shape, dtype, sharded)


def shape_of(size: Any) -> tuple[int, ...] | None:
    """Read a size; None when it is none."""
    if isinstance(size, Object) and size.kind == "torch.Size" and isinstance(size.args, tuple):
        size = size.args[0] if size.args else ()
    if isinstance(size, (tuple, list)) and all(type(each) is int and each >= 0 for each in size):
        return tuple(size)
    return None


def dtype_of(value: Any) -> str:
    """Read a dtype, without ``torch.``; empty when it is none."""
    return value.name if isinstance(value, Name) and value.module == "torch" else ""


def _storage_dtype(reference: Reference) -> str:
    storage = reference.storage
    return STORAGES[storage[0]][0] if storage and storage[0] in STORAGES else ""
