"""Passes over loaders that evaluate, what is sent until the process trains again, and where numbers are added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Evaluated, Summed
from ddpdoctor.watch.rank.compared.exchanges import is_captured
from ddpdoctor.watch.rank.compared.gradients import tensors_in
from ddpdoctor.watch.rank.compared.windows import reduction
from ddpdoctor.watch.rank.evaluation.evaluations_by_hand import ByHand, ProcessWithLedger
from ddpdoctor.watch.rank.evaluation.returned import Returns
from ddpdoctor.watch.rank.evaluation.summed_twice import SummedAgain
from ddpdoctor.watch.user_frames import Place, frames, is_users, lines_of_the_users

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.data.passes import Pass
    from ddpdoctor.watch.rank.process import Process

OPEN = 8  # passes that are followed at a time
PASSES = 3  # of a loader, that are told
SENT = 16  # communications after a pass that are told
NOTHING_SAID = {"barrier", "monitored_barrier"}
SUMS = {"all_reduce", "reduce"}
SHARDING = "/torch/distributed/fsdp/"
LOOKS = 400  # at calls: whoever adds up more often does so in each step, at lines that are known by then
FEW = 32  # numbers that are added up together: a loss, hits and a count; one of each class
MANY = 4096  # of each class some: centres, moments, a table of confusions
PLACES = 16  # places that are told


@dataclass(slots=True, eq=False)
class Evaluation:
    """One pass, or none, and what was sent since it began: operation, reduction, elements, file and line.

    ``given`` has a copy of each number that was sent alone, on its device; None for anything else.
    """

    passed: Pass | None
    sent: list[tuple[str, str, int, str, int]] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)

    def read(self) -> tuple[float | None, ...]:
        """Return the numbers that were sent. This reads from the device."""
        return tuple(None if each is None else float(each) for each in self.given)


@dataclass(slots=True)
class Evaluations:
    """The evaluations that no training has followed yet."""

    recorder: ProcessWithLedger
    open: list[Evaluation] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)
    """By loader, how many passes over it have evaluated: others, of the same one, may have trained."""
    by_hand: ByHand = field(init=False)
    again: SummedAgain = field(init=False)
    returns: Returns = field(init=False)

    def __post_init__(self) -> None:
        """Follow no evaluation yet."""
        self.by_hand = ByHand(self.recorder)
        self.again, self.returns = SummedAgain(self.recorder), Returns(self.recorder)

    def switched(self, model: Any) -> None:
        """Follow what a model evaluates that was just put into evaluation mode."""
        between = all(each.passed is not None and each.passed.over for each in self.open)
        if self.recorder.is_rank and between and self.by_hand.begins(model):
            self.open.append(Evaluation(None))
            self.recorder.ledger.evaluation.begin()
        if self.recorder.is_rank and self.recorder.writer.counters[event_log.STEPS]:
            self.recorder.ledger.evaluation.switched(model)

    def quiet(self) -> None:
        """Look at nothing that is called any more: something is compiled, or traced."""
        self.by_hand.quiet()

    def began(self, this: Pass) -> None:
        """Follow a pass that was begun where nothing trains."""
        self.by_hand.passes()
        before = self.passed.get(this.loader, 0)
        if len(self.open) < OPEN and before < PASSES:
            self.passed[this.loader] = before + 1
            self.open.append(Evaluation(this))
            self.recorder.ledger.evaluation.begin()

    def communicated(self, operation: str, group: Any, args: Sequence[Any], site: Site | None) -> None:
        """Take note of a communication of the user's; none is what a sharded model gathers its parameters with."""
        if operation in NOTHING_SAID or site is None:
            return
        if self.recorder.models.shards.roots and _gathers_parameters():
            return
        tensors = list(tensors_in(args[0])) if args else []
        elements = sum(each.numel() for each in tensors)
        copy = _copied(tensors) if self.open and elements == 1 else None
        for each in self.open:
            if len(each.sent) < SENT:
                each.sent.append((operation, reduction(tuple(args)), elements, site.file, site.line))
                each.given.append(copy)
        if group is not None and _is_of_all(group):
            self.again.communicated(operation, args, site)
            self.returns.communicated(operation)

    def over(self, *, at_end: bool = False) -> None:
        """Record them: training goes on, or nothing comes any more."""
        self.recorder.ledger.evaluated()
        self.again.over()
        self.returns.over()
        closed, self.open = self.open, []
        for each in closed:
            this = each.passed
            if this is None:
                self.by_hand.over(tuple(each.sent), each.read, at_end=at_end)
            elif not this.forwards and this.batches:
                self.recorder.emit(
                    Evaluated,
                    loader=this.loader,
                    number=this.number,
                    sent=tuple(each.sent),
                    complete=this.over and this.complete,
                    at_end=at_end,
                    given=each.read(),
                    site=this.site,
                )


@dataclass(slots=True)
class Sums:
    """The places that were told; how many calls of ``single`` numbers were looked at, ``several`` and ``many``."""

    recorder: Process
    told: set[Place] = field(default_factory=set)
    single: int = 0
    several: int = 0
    many: int = 0

    def communicated(self, operation: str, group: Any, args: Sequence[Any]) -> None:
        """Tell the place of a sum of a few numbers over all ranks, once."""
        if operation not in SUMS or self.single >= LOOKS or len(self.told) >= PLACES:
            return
        elements = _numbers(args)
        if elements == 1:
            self.single += 1
        elif 1 < elements <= FEW and self.several < LOOKS:
            self.several += 1
        elif FEW < elements <= MANY and self.many < LOOKS:
            self.many += 1
        else:
            return
        if reduction(tuple(args)) != "SUM" or not _is_of_all(group):
            return
        place = lines_of_the_users()
        if place and place not in self.told:
            self.told.add(place)
            self.recorder.emit(
                Summed,
                operation=operation,
                callers=place,
                elements=elements,
                given=_given(args) if elements == 1 else None,
            )


def _copied(tensors: list[Any]) -> Any:
    """Return the one number of some tensors, in memory of its own and on its device; None where it is of no plain one.

    Nothing is waited for.
    """
    import torch

    (number,) = (each for each in tensors if each.numel())
    if type(number) is not torch.Tensor or number.is_complex() or is_captured():
        return None
    return number.detach().to(torch.float32, copy=True)


def _gathers_parameters() -> bool:
    """Whether FSDP communicates, for a forward of the user's."""
    for frame in frames():
        file = frame.f_code.co_filename
        if is_users(file):
            return False
        if SHARDING in file:
            return True
    return False


def _numbers(args: Sequence[Any]) -> int:
    """Return how many numbers the one tensor has that is sent; 0 for several tensors."""
    given: Any = args[0] if args else None
    first: Any = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
    return int(first.numel()) if hasattr(first, "numel") else 0


def _given(args: Sequence[Any]) -> float | None:
    """Return the one number that is sent, where it lies in memory that need not be waited for."""
    given: Any = args[0]
    first: Any = given[0] if isinstance(given, (list, tuple)) else given
    plain = first.device.type == "cpu" and not first.is_complex() and not is_captured()
    return float(first.detach()) if plain else None


def _is_of_all(group: Any) -> bool:
    import torch.distributed as dist

    return dist.is_initialized() and bool(group.size() == dist.get_world_size())
