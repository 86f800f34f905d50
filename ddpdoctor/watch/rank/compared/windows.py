"""What is sent between two steps of an optimizer, while the second one is to be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events.steps.parts import ANOTHERS
from ddpdoctor.watch.rank.compared.fingerprints import is_dense
from ddpdoctor.watch.rank.compared.gradients import tensors_in

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Product, Site
    from ddpdoctor.watch.rank.graph.averages import Term
    from ddpdoctor.watch.rank.graph.constants import Constant


MOST = 256  # communications of one step that are looked at


RUNS = 8


LIKE = 1e-4  # relative: norms of the same numbers, added up in another order


REDUCTIONS = ("SUM", "AVG", "MAX", "MIN", "PRODUCT")


@dataclass(slots=True)
class Sent:
    """One communication; ``caller`` is the line of the function that steps.

    ``norm`` is that of the one tensor it was given, ``norms`` those that it could be. ``learnt``: what is gathered was
    computed with gradients.
    """

    operation: str
    reduction: str
    what: str
    when: str
    elements: int
    site: Site | None
    caller: int
    learnt: bool
    norm: Any = None
    norms: tuple[tuple[str, Any], ...] = ()

    def content(self) -> str:
        """Return what it was given, or nothing where that is unknown; this reads from the device."""
        if self.what or self.norm is None:
            return self.what
        norm = float(self.norm)
        return next((what for what, each in self.norms if norm and abs(float(each) - norm) <= LIKE * norm), "")


@dataclass(slots=True, eq=False)  # tensors have another notion of equality
class Window:
    """The time from one step of an optimizer to its next one, which is sampled; ``held`` is what optimizers hold."""

    parameters: tuple[Any, ...]
    when: Callable[[], str]
    caller: Callable[[], int]
    held: Callable[[], Sequence[Any]]
    seen: list[Sent] = field(default_factory=list)
    divisors: set[float] = field(default_factory=set)
    constants: list[Constant] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    terms: list[list[Term]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """The line that asked for the gradients of each loss in ``terms``."""
    backward: Site | None = None

    def communicated(
        self, operation: str, args: tuple[Any, ...], tensors: Sequence[Any], site: Site | None, *, in_backward: bool
    ) -> None:
        """Take note of a communication, before it begins."""
        if len(self.seen) >= MOST:
            return
        elements = sum(each.numel() for each in tensors)
        when = "in backward" if in_backward else self.when()
        exchange = Sent(
            operation, reduction(args), "", when, elements, site, self.caller(), _is_learnt(operation, args)
        )
        self.seen.append(exchange)
        dense = [each for each in tensors if is_dense(each)]
        if not dense:
            return
        addresses = {each.data_ptr() for each in dense}
        ours = set(map(id, self.parameters))
        gradients = self.gradients()
        others = _gradients(each for each in self.held() if id(each) not in ours)
        if any(each.data_ptr() in addresses for each in gradients):
            exchange.what = "gradient"
        elif any(each.data_ptr() in addresses for each in self.parameters):
            exchange.what = "parameter"
        elif any(each.data_ptr() in addresses for each in others):
            exchange.what = ANOTHERS
        elif len(dense) == 1:
            exchange.norm, exchange.norms = _norm(dense), tuple(self._alike(dense[0], gradients, others))

    def gradients(self) -> list[Any]:
        """Return the gradients of the parameters, as they are now."""
        return _gradients(self.parameters)

    def _alike(self, tensor: Any, gradients: list[Any], others: list[Any]) -> list[tuple[str, Any]]:
        """Return the norms of what a tensor can be a copy of: those of its size together, in a row."""
        found = []
        for what, those in (("gradient", gradients), ("parameter", list(self.parameters)), (ANOTHERS, others)):
            found += [(what, _norm(run)) for run in _runs(those, tensor.numel())]
        return found


def _is_learnt(operation: str, args: tuple[Any, ...]) -> bool:
    """Whether what a rank gives to be gathered has a gradient, which no gathered tensor has."""
    given = args[1:2] if "all_gather" in operation else ()
    return any(each.requires_grad and each.grad_fn is not None for each in tensors_in(given))


def summed_losses(window: Window | None) -> float | None:
    """Return the sum of the losses of a step, as backward was given them; None where there is none. This reads."""
    import torch

    if window is None or not window.losses:
        return None
    with torch.no_grad():
        return float(torch.stack([each.to(window.losses[0].device) for each in window.losses]).sum())


def _gradients(parameters: Iterable[Any]) -> list[Any]:
    return [each.grad for each in parameters if each.grad is not None and is_dense(each.grad)]


def _runs(tensors: list[Any], elements: int) -> list[list[Any]]:
    """List what follows each other and has so many elements together, the first few."""
    ends = {0: 0}
    found = []
    total = 0
    for at, each in enumerate(tensors, start=1):
        total += each.numel()
        if total - elements in ends:
            found.append(tensors[ends[total - elements] : at])
        ends[total] = at
    return found[:RUNS]


def _norm(tensors: Sequence[Any]) -> Any:
    import torch

    with torch.no_grad():
        return torch.stack([each.detach().float().norm() for each in tensors]).norm()


def reduction(args: tuple[Any, ...]) -> str:
    """Return the name of the reduction that a communication was given; empty where it has none."""
    import torch.distributed as dist

    given = getattr(args[1], "reduceOp", None) if len(args) > 1 else None
    return next((name for name in REDUCTIONS if given is not None and given == getattr(dist.ReduceOp, name)), "")
