"""Lists that are gathered into, of which several places are one tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import GatherAliased

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

GATHERS = {"all_gather", "gather"}
LOOKS = 200  # calls: whoever gathers more often does so in each step, at lines that are known by then
HABIT = 2  # calls of a line: one alone warms up


@dataclass(slots=True)
class Aliases:
    """How many calls were looked at, and how often a line has gathered into such a list."""

    recorder: Process
    looks: int = 0
    seen: Counter[Site] = field(default_factory=Counter)

    def communicated(self, operation: str, args: Sequence[Any], site: Site | None) -> None:
        """Tell a line that gathers into one tensor, once."""
        if operation not in GATHERS or self.looks >= LOOKS or site is None or not args:
            return
        self.looks += 1
        for into in args[0] if isinstance(args[0], (list, tuple)) else ():
            places = [each for each in into if _has_memory(each)] if isinstance(into, (list, tuple)) else []
            if len({each.data_ptr() for each in places}) < len(places):
                self.seen[site] += 1
                if self.seen[site] == HABIT:
                    self.recorder.emit(GatherAliased, operation=operation, places=len(places), site=site)


def _has_memory(tensor: Any) -> bool:
    """Whether a tensor is a plain one that lies somewhere: none of a tracer's, and none on the meta device."""
    import torch

    return type(tensor) is torch.Tensor and not tensor.is_meta and tensor.layout is torch.strided and tensor.numel() > 0
