"""What torch.compile has compiled again and again of the user's own, and what it has given up."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import CompiledAnew
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.watch.rank.growing.piled import Place
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

VERSIONS = 5  # of one function, compiled from one look to the next
GIVEN_UP = "limit exceeded"
"""Part of what torch keeps of a function of which it would have compiled more versions than it may."""


@dataclass(slots=True)
class Recompiled:
    """What torch's own list of compilations says at each look; it is told once."""

    recorder: ProcessWithModels
    looked: float = 0.0
    is_told: bool = False

    def look(self, steps: int) -> None:
        """Look for a function that torch has given up, or of which many versions were made since the last look."""
        metrics = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
        now, before = time.time(), self.looked
        self.looked = now
        if metrics is None or self.is_told:
            return
        made = list(metrics())
        place, versions = _given_up(made)
        is_given_up = bool(versions)
        if not is_given_up and before:
            place, versions = _most([each for each in made if (each.start_time or 0) >= before])
        if is_given_up or len(versions) >= VERSIONS:
            self.is_told = True
            began = min(each.start_time or now for each in versions) if is_given_up else before
            self.recorder.emit(
                CompiledAnew, file=place[0], line=place[1], function=place[2], times=len(versions),
                seconds=sum(each.entire_frame_compile_time_s for each in versions), within=now - began, steps=steps,
                why=str(getattr(versions[-1], "recompile_reason", None) or ""), given_up=is_given_up, site=None,
            )  # fmt: skip


def _most(made: Sequence[Any]) -> tuple[Place, list[Any]]:
    """Return the function of the user's of which most versions were made, and these."""
    by_place: dict[Place, list[Any]] = {}
    for each in made:
        file = str(each.co_filename)
        if is_users(file) and each.entire_frame_compile_time_s:
            by_place.setdefault((file, each.co_firstlineno, each.co_name), []).append(each)
    return max(by_place.items(), key=lambda item: len(item[1]), default=(("", 0, ""), []))


def _given_up(made: Sequence[Any]) -> tuple[Place, list[Any]]:
    """Return the function that torch has given up of which most versions were made; no version where there is none."""
    frames = {_frame(each) for each in made if GIVEN_UP in str(getattr(each, "fail_reason", None) or "")} - {""}
    return _most([each for each in made if _frame(each) in frames])


def _frame(compilation: Any) -> str:
    """Return the number of the function that was compiled, which its versions have in common; empty if not known."""
    return str(getattr(compilation, "compile_id", None) or "").rpartition("/")[0]
