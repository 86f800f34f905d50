"""The parts of a data set that ranks evaluate by lists of the script's own: a Subset, or a list that is a sampler."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import DataSeen, EpochEnded, Training, last_name

from ..._evaluation.counts import WORLDS
from ..._evaluation.metrics import part_around
from ..._evaluation.quotients import WORLD
from ..._ledgers.flows import Flow, names_in

if TYPE_CHECKING:
    from ddpdoctor.check import Site

    from ..._evaluation.evaluations import Share

LISTS = {"range", "list", "tuple", "ndarray"}
FEWEST = 4  # samples
SHARE = 0.1  # of a part


class Part(NamedTuple):
    """Samples by index, all of them or those with the smallest hashes, and the step from one to the next."""

    indices: frozenset[int]
    step: int


def own_parts(ranks: dict[int, Share], training: Training) -> dict[int, Part]:
    """Return what each rank evaluates, where the script has listed it at equal steps; nothing where it has not."""
    found = {rank: _part(each, training) for rank, each in ranks.items()}
    sources = {each.source for each in found.values() if each is not None}
    if None in found.values() or len(sources) != 1 or "" in sources:
        return {}
    return {rank: each.part for rank, each in found.items() if each is not None}


class _Found(NamedTuple):
    part: Part
    source: str


def _part(share: Share, training: Training) -> _Found | None:
    pid, loader, sampler = share.told.pid, share.told.loader, share.started.sampler
    seen = next(iter(training.of(DataSeen, pid=pid, loader=loader)), None)
    if seen is None or sampler is None:
        return None
    if sampler.kind == "SequentialSampler" and seen.picks and all(each.isdigit() for each in seen.first):
        part = _at_equal_steps([*map(int, seen.first)], seen.least, share.started.length or 0)
        return _Found(part, seen.base) if part is not None else None
    ended = training.of(EpochEnded, pid=pid, loader=loader, number=0)
    if sampler.kind in LISTS and ended and ended[0].stride == 1:
        part = _at_equal_steps(ended[0].drawn[:FEWEST], ended[0].drawn, len(ended[0].drawn))
        return _Found(part, seen.contents) if part is not None else None
    return None


def _at_equal_steps(first: Sequence[int], some: Sequence[int], count: int) -> Part | None:
    """Return a part, if its first indices and those that are known lie at equal steps."""
    if len(first) < FEWEST or count < FEWEST:
        return None
    step = first[1] - first[0]
    whole = range(first[0], first[0] + step * count, step) if step > 0 else range(0)
    return Part(frozenset(some), step) if all(each in whole for each in (*first, *some)) else None


def overlap(parts: dict[int, Part]) -> int:
    """Return how many samples two parts, that are not the same, have in common at least; 0 for a few of many."""
    sets = [each.indices for each in parts.values()]
    if len(set(sets)) == 1:
        return 0
    common = max(len(one & other) for at, one in enumerate(sets) for other in sets[:at])
    return common if common > max(1, SHARE * min(map(len, sets))) else 0


def is_one_for_all(parts: dict[int, Part], made: Site) -> bool:
    """Whether all ranks have one part, of a step, or a length, that the source takes from the number of ranks."""
    if len({each.indices for each in parts.values()}) != 1:
        return False
    around = part_around(made)
    flow = Flow(around)
    for node in ast.walk(around):
        if isinstance(node, (ast.Assign, ast.Return, ast.Expr)) and node.value and _is_at(node, made):
            names = flow.of(names_in(node.value))
            values = [node.value, *(value for name in names for value in flow.values.get(name, ()))]
            return any(_cuts_by_world(part) for value in values for part in ast.walk(value))
    return False


def _is_at(node: ast.stmt, site: Site) -> bool:
    return node.lineno <= site.line <= (node.end_lineno or 0)


def _cuts_by_world(node: ast.AST) -> bool:
    match node:
        case ast.Slice():
            words = ast.unparse(node)
        case ast.Call(func=called, args=args) if last_name(called) in {"range", "islice", "arange"}:
            words = " ".join(map(ast.unparse, args))
        case _:
            return False
    return bool(WORLDS.search(words)) or any(each in WORLD for each in words.replace(".", " ").split())
