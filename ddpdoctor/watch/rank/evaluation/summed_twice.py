"""Sums over all ranks of an evaluation that are added up once more."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.watch.events import SummedTwice
from ddpdoctor.watch.rank.compared.exchanges import is_captured
from ddpdoctor.watch.rank.compared.windows import reduction
from ddpdoctor.watch.user_frames import frames, is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

MOST = 1000  # elements: one for each class; whoever sends more twice may measure how long that takes
KEPT = 16  # sums
PLACES = 16  # places that are told
CALLERS = 3


class Sum(NamedTuple):
    """A tensor that was added up: whose memory, which part of it, how often it had been written to, and where."""

    memory: Callable[[], Any]
    begins: int
    ends: int
    version: int
    place: tuple[int, ...]
    site: Site


@dataclass(slots=True)
class SummedAgain:
    """The last sums over all ranks of the evaluation that is on its way."""

    recorder: Process
    sums: list[Sum] = field(default_factory=list)
    told: set[Site] = field(default_factory=set)

    def communicated(self, operation: str, args: Sequence[Any], site: Site | None) -> None:
        """Take note of a sum over all ranks, and tell of one that is added up again; it is of the user's."""
        if operation != "all_reduce" or site is None or len(self.told) >= PLACES or is_captured():
            return
        tensor = _only(args)
        if tensor is None or reduction(tuple(args)) != "SUM":
            return
        memory = tensor if tensor._base is None else tensor._base  # noqa: SLF001 - torch's own name for it
        begins = tensor.storage_offset()
        this = Sum(
            weakref.ref(memory), begins, begins + tensor.numel(), tensor._version, _place(), site  # noqa: SLF001
        )  # fmt: skip
        before = next((each for each in self.sums if each.memory() is memory and _is_again(this, each)), None)
        self.sums = [*self.sums[-KEPT:], this]
        if before is not None and site not in self.told:
            self.told.add(site)
            norm = float(tensor.detach().double().norm())
            self.recorder.emit(SummedTwice, first=before.site, elements=tensor.numel(), norm=norm, site=site)

    def over(self) -> None:
        """Forget all: the training goes on."""
        self.sums.clear()


def _only(args: Sequence[Any]) -> Any:
    """Return the one plain tensor of a few numbers in a row that is sent; None for anything else."""
    import torch

    given: Any = args[0] if args else None
    first: Any = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
    plain = type(first) is torch.Tensor and not first.is_complex() and not first.is_inference()
    return first if plain and 0 < first.numel() <= MOST and first.is_contiguous() else None


def _place() -> tuple[int, ...]:
    """Return which instructions of the user's have led here: a line that is reached twice is one place."""
    users = [each for each in frames() if is_users(each.f_code.co_filename)]
    return tuple(part for each in users[:CALLERS] for part in (id(each.f_code), each.f_lasti))


def _is_again(this: Sum, before: Sum) -> bool:
    overlap = this.begins < before.ends and before.begins < this.ends
    return overlap and this.version == before.version and this.place != before.place
