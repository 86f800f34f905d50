"""What Python gives to communications: counted always, and looked at while a sampled step is on its way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense
from ddpdoctor.watch.rank.compared.gradients import tensors_in
from ddpdoctor.watch.rank.graph.averages import terms
from ddpdoctor.watch.rank.graph.constants import constants, other_number
from ddpdoctor.watch.rank.graph.products import products
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.compared.windows import Window

NUMBERS = 64  # that losses of one step are computed with
LOSSES = 64  # of one step: batches that are accumulated
DEEP = 4  # operations from the end of a loss


@dataclass(slots=True)
class Exchanges:
    """All communications of a process: calls and elements by operation, and the windows that look at them now.

    ``in_backward``: torch is computing gradients, and what communicates is a hook. ``backwards`` counts them, and
    ``nested`` those that began within another, as reentrant checkpointing does.
    """

    sent: dict[str, list[int]] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    in_backward: bool = False
    backwards: int = 0
    nested: int = 0

    def communicated(
        self, operation: str, args: tuple[Any, ...], tensors: Sequence[Any], elements: int, site: Site | None
    ) -> None:
        """Take note of a communication, before it begins: of what it is given these tensors, with so many elements."""
        counts = self.sent.setdefault(operation, [0, 0])
        counts[0] += 1
        counts[1] += elements
        for window in self.windows:
            window.communicated(operation, args, tensors, site, in_backward=self.in_backward)

    def backward(self, given: Any) -> None:
        """Take note of a loss, on its device, and of the numbers it was computed with, before its gradients are."""
        site = user_site()
        for loss in tensors_in(given):
            parts = terms(loss) if not is_captured() else []
            copy, numbers, last, several = _copied(loss), constants(loss), set(divisors(loss)), products(loss)
            for window in self.windows:
                window.divisors.update(last)
                if len(window.constants) <= NUMBERS:
                    window.constants += numbers
                if len(window.products) <= NUMBERS:
                    window.products += several
                if copy is not None and len(window.losses) < LOSSES:
                    window.losses.append(copy)
                if len(window.terms) < LOSSES:
                    window.terms.append(parts)
                    window.asked.append(site.line if site else 0)
                window.backward = site or window.backward

    def elements(self) -> int:
        """Return how many elements were sent so far."""
        return sum(elements for _, elements in self.sent.values())


def is_captured() -> bool:
    """Whether a CUDA graph is being made, in which nothing can be read."""
    import torch

    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _copied(loss: Any) -> Any:
    """Return a loss in memory of its own, on its device, without waiting for it; None where it is no number."""
    return fold(loss)[0] if is_dense(loss) and loss.numel() == 1 and not is_captured() else None


def clock() -> int:
    """Return how many collectives the default process group has begun, in C++ as well; 0 where it does not count."""
    import torch.distributed as dist

    group: Any = dist.group.WORLD if dist.is_initialized() else None
    try:
        return int(group._get_sequence_number_for_group()) if group is not None else 0  # noqa: SLF001 - torch's own
    except RuntimeError:  # a backend that does not count
        return 0


def divisors(loss: Any) -> Iterator[float]:
    """Yield the plain numbers that a loss was divided by last, as its graph has them."""
    node = getattr(loss, "grad_fn", None)
    for _ in range(DEEP):
        if node is None or node.name() not in {"DivBackward0", "MulBackward0"}:
            return
        number = other_number(node) if node.name() == "DivBackward0" else None
        if number is not None:
            yield number
        node = node.next_functions[0][0]
