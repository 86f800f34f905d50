"""A number that tensors are computed with is each rank's own.

## What happens

A threshold that follows the losses of late, the baseline of a policy gradient, the probability of an augmentation that
follows the discriminator, the level of a curriculum, the mean that targets are shifted by: plain numbers that an object
or a function keeps. DDP keeps parameters and buffers equal, not numbers. Where each rank computes its own from its own
share, each rank trains by another rule: samples are chosen, weighted or scaled in another way on every rank. The
gradients are averaged, the weights stay equal, and nothing fails.

## How to be sure

ddpdoctor takes note, in compared steps, of the numbers that lines of the script compute tensors with, and of what the
functions that train held before the batch came. Reported is a number that such a line names, that was equal on all
ranks and has gone apart, and that the source computes from what it was before (`self.p += ...`, an average of late
losses); or one that was never equal, never changes, and is a mean, a deviation or the like of the rank's samples.

## How to mend it

Compute it by what all ranks have seen:

    seen = torch.tensor(seen_by_this_rank, device=device)
    dist.all_reduce(seen)
    seen /= dist.get_world_size()

Silent of numbers that are drawn by chance or read off a clock, and of rates of exploration. Not seen in compiled code.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design: what is kept equal is parameters and buffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Number, Place, Severity, StepFingerprinted, Training, watch

from .._alike import earlier, without_parallelism
from ._numbers import Kept, kept, name_of, names_at, names_of

AILMENT = Ailment("DDP1553", Severity.WARNING)
SURE = 3  # steps
CHOSEN = re.compile(r"eps(ilon)?$|explor|rank|seed", re.IGNORECASE)
"""In the name of a number that is meant to be another one on each rank."""

Held = dict[str, tuple[float, ...]]


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a number that a line computes with, and that is not the same on all ranks."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    steps = [ranks, *earlier(event, training)]
    held = [_holdings(each) for each in steps]
    said = {path for each in ranks.values() for factor in each.factors for path in factor.paths}
    for site in _apart(ranks):
        names = names_at(site.file, site.line)
        meant = [path for path, values in held[0].items() if len(set(values)) > 1 and names & set(names_of(path))]
        for path in meant:
            if path in said or CHOSEN.search(name_of(path)):
                continue
            file, how = _kept(path, site, event)
            known = [(each[path], _meets(site, step)) for each, step in zip(held, steps, strict=True) if path in each]
            sure = [_is_sure(how, known[at:]) for at in range(len(known))] if how is not None else []
            if how is not None and sure[0] and not any(sure[1:]):  # not said before
                yield _finding(path, known, (file, how), site, event)
                return


def _is_sure(how: Kept, known: list[tuple[tuple[float, ...], bool]]) -> bool:
    """Whether a number is another one on each rank, of what it was in a step and in those before, latest first.

    One that each rank adapts was equal before, or has changed on all of them: what never does, each rank was given.
    """
    (now, meets), *past = known
    if not meets or len(set(now)) == 1:
        return False
    if how.carried:
        return any(len(set(each)) == 1 or _changed(now, each) for each, _ in past)
    return len(past) >= SURE - 1 and all(each == now for each, _ in past)


def _meets(site: Number, ranks: dict[int, StepFingerprinted]) -> bool:
    return any(each[:3] == site[:3] for each in _apart(ranks))


def _changed(now: tuple[float, ...], then: tuple[float, ...]) -> bool:
    return all(one != other for one, other in zip(now, then, strict=True))


def _holdings(ranks: dict[int, StepFingerprinted]) -> Held:
    told = [dict(each.holdings) for each in ranks.values()]
    return {path: tuple(each[path] for each in told) for path in told[0] if all(path in each for each in told)}


def _apart(ranks: dict[int, StepFingerprinted]) -> list[Number]:
    """Return the numbers that a line of all ranks computes with, and that are not equal there."""
    told = [{each[:3]: each for each in step.numbers} for step in ranks.values()]
    return [
        first
        for key, first in told[0].items()
        if all(key in each for each in told) and len({each[key].value for each in told}) > 1
    ]


def _kept(path: str, site: Number, event: StepFingerprinted) -> tuple[str, Kept | None]:
    for file in dict.fromkeys((site.file, event.site.file if event.site else "")):
        for name in reversed(names_of(path)) if file else ():
            if (how := kept(file, name)) is not None:
                return file, how
    return "", None


def _finding(
    path: str,
    known: list[tuple[tuple[float, ...], bool]],
    where: tuple[str, Kept],
    site: Number,
    event: StepFingerprinted,
) -> Finding:
    (values, _), *past = known
    told = ", ".join(f"{value:.6g} on rank {rank}" for rank, value in enumerate(values[:8]))
    file, how = where
    name = name_of(path)
    was_equal = any(len(set(each)) == 1 for each, _ in past)
    return Finding(
        f"{path}, which tensors are computed with at {Path(site.file).name}:{site.line}, is not the same on all ranks"
        f"{': each rank adapts its own' if how.carried else ': each rank has that of its own samples'}",
        (
            Evidence(f"{path}: {told}", f"the same on all ranks{', as it was before' if was_equal else ''}",
                     f"before step {event.number}"),
            Evidence("the weights stay equal, the ranks train by other rules", "one rule", f"{site.file}:{site.line}"),
        ),
        Fix(
            f"compute {name} from what all ranks have seen",
            diff=f"+seen = torch.tensor(seen_by_this_rank, device=device)\n+dist.all_reduce(seen)\n"
            f"+seen /= dist.get_world_size()  # then compute {name} from it",
        ),
        Place(file=file, line=how.line),
    )  # fmt: skip
