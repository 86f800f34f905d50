"""A metric that Lightning reduces over the ranks, logged on some of them alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import MetricSynced, batch_condition, calls_at, last_name, spans, tree_of

from ..source._one_rank import condition

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Position, Progress, Site, Training

LOGS = frozenset({"log", "log_dict"})
LACKING = re.compile(r"could not find the monitored key|conditioned on metric \S+ which is not available")
"""What Lightning's callbacks raise on a rank that has not logged what they monitor."""


class Synced(NamedTuple):
    """The rank that has logged it, where, and what lets it alone come there; a rank that never has.

    ``guard`` is empty where both come there, and log what is in their batches.
    """

    rank: int
    logged: MetricSynced
    guard: str
    other: int


def lacked_by_first(event: PeerLost, training: Training) -> Synced | None:
    """Find the key that the rank which failed first did not log, where it fails for want of one."""
    first = event.first
    if first is None or first.rank is None or not LACKING.search(first.said):
        return None
    found = synced_by(sorted({first.rank, *(each.rank for each in event.others if each.rank is not None)}), training)
    return found if found and found.other == first.rank else None


def synced_by_some(ranks: Sequence[Position | Progress], training: Training) -> Synced | None:
    """Find a key that one rank has logged, under a condition, and another has not."""
    return synced_by(sorted({each.rank for each in ranks}), training)


def synced_by(seen: Sequence[int], training: Training) -> Synced | None:
    """Find such a key among these ranks.

    Without a condition around its line the other rank can be on its way to it; unless that has logged there as well,
    and the names are made of what is in the batch.
    """
    names = {rank: {each.name for each in training.of(MetricSynced, rank=rank)} for rank in seen}
    for rank in seen:
        for logged in training.of(MetricSynced, rank=rank):
            other = next((each for each in seen if logged.name not in names[each]), None)
            if other is None or logged.site is None:
                continue
            if guard := condition(logged.site) or batch_condition(logged.site.file, logged.site.line):
                return Synced(rank, logged, guard, other)
            if training.of(MetricSynced, rank=other, site=logged.site) and names_computed(logged.site):
                return Synced(rank, logged, "", other)
    return None


def names_computed(site: Site) -> bool:
    """Whether the names that a line logs are no texts of the source: ``log(f"loss/{kind}")``, a dictionary of such."""
    logs = [each for each in calls_at(site.file, site.line) if last_name(each.func) in LOGS and each.args]
    if len(logs) != 1:
        return False
    given = logs[0].args[0]
    if isinstance(given, ast.Name):
        around = [each for each in tree_of(site.file).of(ast.FunctionDef) if spans(each, site.line)]
        values = [
            each.value
            for each in ast.walk(max(around, key=lambda each: each.lineno, default=ast.Pass()))
            if isinstance(each, ast.Assign) and given.id in map(last_name, each.targets)
        ]
        return bool(values) and all(isinstance(each, ast.DictComp) for each in values)
    return isinstance(given, (ast.DictComp, ast.JoinedStr))
