"""Gradients that some ranks alone have clipped, after DDP has averaged them."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import dataclass

from ddpdoctor.check import Evidence, Fix, Place, StepFingerprinted, StepSampled, Training

from .._words import listed


@dataclass(frozen=True, slots=True)
class Clipped:
    """How ranks clip that others do not, what tells it, and how all do; ``sure``: it has changed a gradient."""

    how: str
    sure: bool
    evidence: tuple[Evidence, ...]
    fix: Fix
    place: Place


def clipped_on_some(ranks: Iterable[StepSampled], training: Training) -> Clipped | None:
    """Return the clipping that some ranks have done in compared steps, and others in none of the same steps."""
    told = {}
    for each in ranks:
        compared = training.of(StepFingerprinted, pid=each.pid, optimizer=each.optimizer)
        told[each.rank or 0] = {step.number: step.clips for step in compared}
    if len(told) < 2:  # noqa: PLR2004 - nobody to compare with
        return None
    common = set.intersection(*(set(steps) for steps in told.values()))
    clips = {rank: [clip for number in sorted(common) for clip in steps[number]] for rank, steps in told.items()}
    some, none = [rank for rank, each in clips.items() if each], [rank for rank, each in clips.items() if not each]
    if not some or not none:
        return None
    clip = max(clips[some[0]], key=lambda each: each.norm - each.most)
    line = linecache.getline(clip.file, clip.line).strip() or "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    who = f"rank{'s' if len(some) > 1 else ''} {listed([*map(str, some)], 4)}"
    return Clipped(
        f"{who} alone {'clip' if len(some) > 1 else 'clips'} the gradients",
        clip.norm > clip.most,
        (
            Evidence(
                f"a norm of {clip.norm:.4g} is clipped to {clip.most:.4g} at most", "on all ranks", f"rank {some[0]}"
            ),
            Evidence(f"never clipped in {len(common)} compared steps", "as on the others", f"rank {none[0]}"),
        ),
        Fix("clip on all ranks: DDP has given all the same gradients", diff=f"-if rank == 0:\n-    {line}\n+{line}"),
        Place(file=clip.file or None, line=clip.line or None),
    )
