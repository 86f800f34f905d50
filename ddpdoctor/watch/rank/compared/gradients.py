"""Norms of gradients and parameters, and what a script does to gradients by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site

TENSORS = 64  # of one communication, whose sizes are added up one by one
RANDOM_STATE = 5056  # bytes that torch.get_rng_state() has


@dataclass(slots=True)
class ByHand:
    """Gradients that the script itself gives to a reduction after DDP's.

    ``scaled`` is the first one's norm there, divided by what backward left: 0.5 where it was halved before.
    """

    operation: str
    site: Site | None
    names: list[str]
    scaled: float


def tensors_in(given: Any) -> Iterator[Any]:
    """Yield the tensors that a communication was given, the first of many."""
    if isinstance(given, (list, tuple)):
        for each in given[:TENSORS]:
            yield from tensors_in(each)
    elif hasattr(given, "numel"):
        yield given


def elements_of(tensors: Iterable[Any]) -> int:
    """Count the elements of tensors; the state of a generator, which Accelerate sends, is none of a model."""
    return sum(size for each in tensors if (size := each.numel()) != RANDOM_STATE or not _is_of_bytes(each))


def _is_of_bytes(tensor: Any) -> bool:
    import torch

    return bool(tensor.dtype == torch.uint8)


def norms(tensors: Sequence[Any]) -> list[float | None]:
    """Return the L2 norm of each tensor, with one transfer from the device; None for one that is missing or sparse.

    A subclass has none either: the norm of a DTensor would be a collective.
    """
    import torch

    with torch.no_grad():
        dense = [type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout is torch.strided for each in tensors]
        chosen = [each.detach() for each, ok in zip(tensors, dense, strict=True) if ok]
        if not chosen:
            return [None] * len(tensors)
        found = torch._foreach_norm(chosen)  # noqa: SLF001 - what clip_grad_norm_ uses, in all versions
        values = iter(torch.stack([each.float().to(found[0].device) for each in found]).tolist())
    return [next(values) if ok else None for ok in dense]


def median(values: Iterable[float]) -> float | None:
    """Return the middle one of some values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
