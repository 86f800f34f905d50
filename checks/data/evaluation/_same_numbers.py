"""Numbers that all ranks have computed alike, and whose sum a function without gradients divides by a length."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.check import Evidence, Site, Summed, Training

from ..._evaluation.counts import counts_ranks
from ..._evaluation.evaluations import shares_gradients
from ..._evaluation.metrics import part_around
from ..._evaluation.rank_parts import is_untrained
from ._own_counts import added_up, quotients
from ._own_parts import cut_for_all


class Same(NamedTuple):
    """The number by rank, what its sum is divided by, where it is added up, and the line that cuts one part for all."""

    numbers: dict[int, float]
    divisor: str
    site: Site
    cut: Site | None

    def evidence(self, event: Summed) -> tuple[Evidence, ...]:
        """Return what each rank gives, and what the sum is divided by."""
        return (
            *(
                Evidence(f"{number:.9g} is given to {event.operation}", "the sum of its part", f"rank {rank}")
                for rank, number in [*self.numbers.items()][:8]
            ),
            Evidence(f"divided by {self.divisor}, not by the number of ranks", "", f"{self.site.function}()"),
        )


def same_numbers(event: Summed, training: Training) -> Same | None:
    """Return one number that all ranks have computed alike, to the last digit; whole numbers can be alike by chance."""
    told = training.by_rank(Summed, callers=event.callers)
    if not event.callers:
        return None
    numbers = {rank: each.given for rank, each in told.items() if each.given is not None}
    if len(numbers) < training.world_size or len(numbers) < 2 or training.framework is not None:  # noqa: PLR2004
        return None
    if len(numbers) < len(told) or len(set(numbers.values())) > 1 or next(iter(numbers.values())).is_integer():
        return None
    site = Site(*event.callers[0])
    around = part_around(site)
    names = added_up(around, site.line)
    divisors = [ast.unparse(divisor) for _, divisor in quotients(around, names, site.line)]
    if not names or not divisors or counts_ranks(around, names, site) or site.function == "<module>":
        return None
    if not all(shares_gradients(each.pid, training) for each in told.values()) or not is_untrained(around):
        return None
    return Same(numbers, divisors[0], site, cut_for_all(event.callers[:1]))
