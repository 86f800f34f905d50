"""A call that one rank alone comes to: by a test, an early return or a decorator, around it or around its caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Doing,
    Fix,
    are_alternatives,
    called_at,
    condition_of_callers,
    one_rank_calls,
    one_rank_only,
    other_ranks_only,
    rank_condition,
)

from .._messages import MESSAGES
from ..turns._halves import other_halves
from ._rewritten import of_the_first, rewritten, shown
from ._source_alone import is_called_alone

if TYPE_CHECKING:
    from ddpdoctor.check import Communication, Position, Site, Stalled

DEFAULT = frozenset({"0", "default_pg"})
"""Names of the group that all ranks are in, by version of torch."""
UNPAIRED = MESSAGES | {"backward"}
WRITE_ALONE = frozenset("save save_checkpoint save_model save_state save_pretrained".split())
"""Methods by which frameworks save: all ranks call them, and what one rank is to write it writes alone."""
OF_FRAMEWORKS = WRITE_ALONE | frozenset(
    "all_gather all_reduce barrier broadcast evaluate fit gather gather_for_metrics load load_checkpoint load_state"
    " pad_across_processes predict reduce test validate wait_for_everyone".split()
)
"""Methods of frameworks that all ranks have to call, besides torch's own collectives."""
CONSTRUCTION = "DistributedDataParallel()"
"""What the watch calls the wrapping of a model, in which all ranks take part."""
BARRIERS = frozenset("barrier monitored_barrier wait_for_everyone".split())
WITHOUT_RESULT = frozenset("barrier fit load_checkpoint load_state wait_for_everyone".split())


class Guarded(NamedTuple):
    """A rank, the line where it calls what others do not, the line that they skip, what lets it alone come there."""

    position: Position
    at: Site | None
    site: Site
    guard: str
    call: str

    @property
    def waits(self) -> bool:
        """Whether the rank still waits in that call."""
        return self.position.site == self.at


def alone(event: Stalled) -> Guarded | None:
    """Return a rank that waits where it alone comes, for certain, or that has made a call there; others have not."""
    return next(_waits_alone(event), None) or next(_called_alone(event), None)


def _waits_alone(event: Stalled) -> Iterator[Guarded]:
    for position in event.doing(Doing.WAITING):
        if position.operation in UNPAIRED or _in_a_subgroup(position):
            continue
        for site in position.stack or filter(None, (position.site,)):
            guard = one_rank_only(site.file, site.line)
            if (
                guard
                and not _can_be_answered(event, site)
                and not other_halves(site)
                and not any(_is_beside(site, other) for other in event.ranks if other is not position)
            ):
                yield Guarded(position, position.site, site, guard, called(position.site, position.operation))


def _called_alone(event: Stalled) -> Iterator[Guarded]:
    """Yield the calls of one rank that were answered by another call of the others, or by none: latest first.

    Barriers, say, are all alike: the ranks go on, one call apart, until two calls meet that do not fit.
    """
    for position in event.ranks:
        others = [each.recent for each in event.ranks if each is not position]
        for call in reversed(position.recent):
            if call.site is None or call.group not in DEFAULT or call.operation in UNPAIRED:
                continue
            guard = one_rank_only(call.site.file, call.site.line) or _guard_of_callers(call.site, others)
            if (
                guard
                and not _can_be_answered(event, call.site)
                and not any(_answers(each, call) for recent in others for each in recent)
            ):
                yield Guarded(position, call.site, call.site, guard, called(call.site, call.operation))


def _guard_of_callers(site: Site, others: Sequence[Sequence[Communication]]) -> str:
    """Return in words what lets one rank alone call the function of a line, where no other rank was seen there."""
    seen = any(each.site is not None and each.site.file == site.file and each.site.function == site.function
               for recent in others for each in recent)  # fmt: skip
    return "" if seen else one_rank_calls(site.file, site.function)


def _can_be_answered(event: Stalled, site: Site) -> bool:
    """Whether ranks that are not seen can be on their way to a call of their own, where no other one is seen."""
    return not event.ranks[1:] and not is_called_alone(site.file, site.line)


def _answers(other: Communication, call: Communication) -> bool:
    """Whether a call of another rank stands where only the others come, at the same turn."""
    if other.site is None or (other.group, other.number) != (call.group, call.number):
        return False
    return other_ranks_only(other.site.file, other.site.line)


def _in_a_subgroup(position: Position) -> bool:
    last = position.recent[-1] if position.recent else None
    return last is not None and last.site == position.site and last.group not in {"", *DEFAULT}  # "": not known


def _is_beside(site: Site, other: Position) -> bool:
    """Whether another rank is in the same function call, or in the other branch of the same test."""
    return any(
        each.file == site.file and (each.line == site.line or are_alternatives(site.file, site.line, each.line))
        for each in other.stack
    )


def condition(site: Site) -> str:
    """Return in words what lets only some ranks come to a line; empty where there is nothing."""
    test = rank_condition(site.file, site.line) or condition_of_callers(site.file, site.function)
    certain = one_rank_only(site.file, site.line) or one_rank_calls(site.file, site.function)
    return certain or (test and f"under `if {test}`")


def condition_at(site: Site) -> bool:
    """Whether a line itself, in its function, is under a condition on the rank."""
    return bool(rank_condition(site.file, site.line) or one_rank_only(site.file, site.line))


def called(site: Site | None, operation: str) -> str:
    """Return what the line calls, as it stands there: a method of a framework, else torch's own name."""
    return (site and called_at(site.file, site.line, OF_FRAMEWORKS)) or operation


def mend(call: str, guard: str) -> Fix:
    """Return how a call is made by all ranks; ``guard`` is what now lets one alone come to it."""
    if call == CONSTRUCTION:
        what = "wrap the model on all ranks: its construction compares and broadcasts the parameters"
        return Fix(what, diff=rewritten(guard, "model = DistributedDataParallel(model)"))
    if call.rpartition(".")[2] in BARRIERS and (first := of_the_first(guard)):
        return Fix(
            "let the first rank make the same call behind what it does alone: the others go on when it comes",
            diff=f" {shown(guard)}:\n     {call}()\n ...   # what the first rank does\n+if {first}:\n+    {call}()",
        )
    if "." not in call:
        what = "let all ranks call the collective, and print or save on rank 0 only"
        return Fix(what, diff=rewritten(guard, f"{call}(...)"))
    if call.rpartition(".")[2] in WRITE_ALONE:
        what = f"let all ranks call {call}: what one rank is to write it writes there alone"
        return Fix(what, diff=rewritten(guard, f"{call}(...)"))
    returns = call.rpartition(".")[2] not in WITHOUT_RESULT
    return Fix(
        f"let all ranks call {call}, and print or save on rank 0 only",
        diff=rewritten(guard, f"{call}(...)", result="result" if returns else ""),
    )
