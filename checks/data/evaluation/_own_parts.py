"""The parts of a data set that ranks evaluate by lists of the script's own: a Subset, or a list that is a sampler."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import DataSeen, EpochEnded, Site, Training, last_name

from ..._evaluation.counts import WORLDS
from ..._evaluation.metrics import part_around
from ..._evaluation.quotients import WORLD
from ..._ledgers.cut import is_cut
from ..._ledgers.flows import RANK, Flow, names_in

if TYPE_CHECKING:
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


def cut_for_all(callers: Iterable[tuple[str, int, str]]) -> Site | None:
    """Return the line of these functions that cuts by the number of ranks, where none cuts by the rank."""
    found = []
    for site in (Site(*each) for each in callers if each[2] != "<module>"):
        nodes = list(ast.walk(part_around(site)))
        if any(is_cut(node) or _is_slice_by_rank(node) for node in nodes):
            return None
        found += [site._replace(line=node.lineno) for node in nodes if _cuts_by_world(node)]  # type: ignore[attr-defined]
    return found[0] if found else None


def _is_slice_by_rank(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="slice"), args=args):
            return any(RANK.search(ast.unparse(each)) for each in args)
    return False


def _is_at(node: ast.stmt, site: Site) -> bool:
    return node.lineno <= site.line <= (node.end_lineno or 0)


def _cuts_by_world(node: ast.AST) -> bool:
    match node:
        case ast.Slice():
            words = ast.unparse(node)
        case ast.Call(func=called, args=args) if last_name(called) in {"range", "islice", "arange", "slice"}:
            words = " ".join(map(ast.unparse, args))
        case _:
            return False
    return bool(WORLDS.search(words)) or any(each in WORLD for each in words.replace(".", " ").split())
