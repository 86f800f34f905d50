"""Parts of an evaluation that a data set of the script's own takes for its rank."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import EpochEnded, Training

from .._ledgers.flows import Flow
from .counts import is_told_ranks
from .metrics import part_around

if TYPE_CHECKING:
    from .evaluations import Share

FEWEST = 4  # checksums


def are_parts(ranks: dict[int, Share], training: Training) -> bool:
    """Whether the loader's data set is told the rank and the number of ranks, and no two ranks had a sample in common.

    What an iterable data set has given is known by checksums of its samples in its first pass.
    """
    made = {each.started.loader_site for each in ranks.values()}
    site = next(iter(made), None)
    if len(ranks) == 1 or len(made) > 1 or site is None:
        return False
    around = part_around(site)
    flow = Flow(around)
    made_by = [each for each in ast.walk(around) if isinstance(each, ast.Call) and _is_at(each, site.line)]
    names = {part.id for each in made_by for part in ast.walk(each) if isinstance(part, ast.Name)}
    values = [*made_by, *(value for name in flow.of(names) for value in flow.values.get(name, ()))]
    if not any(isinstance(part, ast.Call) and is_told_ranks(part) for each in values for part in ast.walk(each)):
        return False
    ended = [training.of(EpochEnded, pid=each.told.pid, loader=each.told.loader, number=0) for each in ranks.values()]
    sums = [set(each[-1].least) if each else set() for each in ended]
    together = set().union(*sums)
    return all(len(each) >= FEWEST for each in sums) and len(together) == sum(map(len, sums))


def _is_at(call: ast.Call, line: int) -> bool:
    return call.lineno <= line <= (call.end_lineno or 0)


def how_many(share: Share) -> str:
    """Return how many samples a rank has evaluated, where its sampler or its data set says so."""
    length = share.started.length
    return f"{share.samples} of {length} samples" if share.samples is not None and length else "a part of the samples"
