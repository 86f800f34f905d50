"""Numbers that all ranks have computed alike, since they have evaluated the same draws."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ddpdoctor.check import Evidence, Site, Summed, Training, last_name, tree_of

from ..._evaluation.evaluations import shares_gradients
from ..._evaluation.metrics import cuts_by_rank, part_around
from ..._evaluation.rank_parts import is_untrained
from .._lines import SEEDS

DRAWS = {"randint", "integers", "choice", "choices", "randrange", "sample", "randperm", "permutation"}
"""What draws which samples are looked at; noise for all samples can be the same on all ranks."""
RANKS = re.compile(r"rank|offset|process|worker|shard", re.IGNORECASE)
"""In a seed that is, or can be, another one on each rank."""


class SameDraws(NamedTuple):
    """The number by rank, and the line that seeds what was drawn."""

    numbers: dict[int, float]
    seed: str
    site: Site

    def evidence(self, event: Summed) -> tuple[Evidence, ...]:
        """Return what each rank gives, and what it was drawn by."""
        told = [*self.numbers.items()][:7]
        return (
            *(Evidence(f"{each:.9g} is given to {event.operation}", "that of other draws", f"rank {rank}")
              for rank, each in told),
            Evidence(self.seed, "a seed with the rank in it", f"{self.site.file}:{self.site.line}"),
        )  # fmt: skip


def same_draws(event: Summed, training: Training) -> SameDraws | None:
    """Return one number that all ranks have computed alike, by draws of a generator that is seeded alike.

    Whole numbers can be alike by chance; whoever cuts what was drawn by the rank draws alike on purpose.
    """
    if not event.callers or training.framework is not None or cuts_by_rank(event.callers):
        return None
    told = training.by_rank(Summed, callers=event.callers)
    numbers = {rank: each.given for rank, each in told.items() if each.given is not None}
    if len(numbers) < max(training.world_size, 2) or len(set(numbers.values())) > 1:
        return None
    if next(iter(numbers.values())).is_integer() or not shares_gradients(event.pid, training):
        return None
    for caller in event.callers:
        around = part_around(Site(*caller))
        if isinstance(around, ast.FunctionDef) and is_untrained(around):
            seeds = [*_seeds(around)]
            if len(seeds) == 1 and not RANKS.search(text := ast.unparse(seeds[0])) and _draws(around, caller[0]):
                return SameDraws(numbers, text, Site(caller[0], seeds[0].lineno, caller[2]))
    return None


def _seeds(around: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that make or seed a generator in a function."""
    for node in ast.walk(around):
        if isinstance(node, ast.Call) and node.args and last_name(node.func) in SEEDS:
            yield node


def _draws(around: ast.AST, file: str) -> bool:
    """Whether a function draws samples, or one of the file's that it calls by its name."""
    calls = [last_name(each.func) for each in ast.walk(around) if isinstance(each, ast.Call)]
    called = [each for each in tree_of(file).of(ast.FunctionDef) if each.name in calls]
    inside = [last_name(each.func) for one in called for each in ast.walk(one) if isinstance(each, ast.Call)]
    return any(each in DRAWS for each in (*calls, *inside))
