"""Plain numbers that a loss is computed with, as its graph has them: weights of its terms, temperatures, rates.

Read are numbers on the host that torch has saved as they were. What a hook has packed, such as that of activation
checkpointing, is left alone: to read it would compute it anew, by the user's own functions. Before torch 2.10 a saved
tensor does not tell whether it was packed, and none is read but the last ones of a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

NODES = 300  # of a graph, from the loss on
MOST = 64  # numbers of a loss


class Constant(NamedTuple):
    """A number of a graph: the operation, its place in the graph, and what the graph looks like up to its end."""

    operation: str
    place: int
    shape: int
    value: float


def other_number(node: Any) -> float | None:
    """Return the number that a product or a quotient was computed with; None where it is a tensor, or packed."""
    try:
        if is_packed(node, "other"):
            return None
        number = node._saved_other  # noqa: SLF001 - as torch documents them for what a node has saved
        is_one = getattr(number, "is_cpu", False) and number.numel() == 1 and not number.requires_grad
        return float(number) if is_one else None
    except (AttributeError, RuntimeError):  # freed, or changed since: torch says so itself
        return None


def is_other(node: Any, number: Any) -> bool:
    """Whether a quotient was computed with this number: the same tensor, on whatever device, or the same value."""
    if not hasattr(number, "data_ptr"):
        return bool(other_number(node) == number)
    try:
        same = not is_packed(node, "other") and node._saved_other.data_ptr() == number.data_ptr()  # noqa: SLF001 - as above
        return bool(same)
    except (AttributeError, RuntimeError):  # as above
        return False


def divisor(loss: Any) -> float | None:
    """Return the number that a loss was divided by last; None where it was not, or where torch does not tell."""
    node = getattr(loss, "grad_fn", None)
    return other_number(node) if node is not None and node.name() == "DivBackward0" else None


def is_packed(node: Any, name: str) -> bool:
    """Whether a hook of the user's has packed what a node has saved, or can have: to read it would compute it anew."""
    return not tells_hooks() or getattr(node, f"_raw_saved_{name}").unpack_hook is not None


def tells_hooks() -> bool:
    """Whether this torch tells which saved tensors a hook has packed."""
    import torch

    return hasattr(torch._C._autograd.SavedTensor, "unpack_hook")  # noqa: SLF001 - there is no other place


def constants(loss: Any) -> list[Constant]:
    """List the numbers in the graph of a loss, nearest to the loss first."""
    readable = tells_hooks()
    found, names = [], []
    for place, node in enumerate(_nodes(getattr(loss, "grad_fn", None))):
        name = node.name()
        names.append(name)
        if name in {"MulBackward0", "DivBackward0"}:
            value = other_number(node) if readable else None
        elif name == "NativeDropoutBackward0":
            value = node._saved_p  # noqa: SLF001 - as above
        else:
            continue
        if value is not None:
            found.append((name, place, float(value)))
    shape = crc32(" ".join(names).encode())
    return [Constant(name.removesuffix("Backward0"), place, shape, value) for name, place, value in found[:MOST]]


def _nodes(first: Any) -> Iterator[Any]:
    """Yield the nodes of a graph breadth first, each once."""
    waiting = deque([first] if first is not None else [])
    seen = {first}
    for _ in range(NODES):
        if not waiting:
            return
        node = waiting.popleft()
        yield node
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)
