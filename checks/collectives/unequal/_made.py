"""Groups that some ranks alone have made: torch numbers groups by the calls of new_group, on each rank by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Evidence, Finding, Fix, GroupMade, Joined, Left, Severity, place

from ..hangs._told import short
from ..timeouts._watchdog import named

if TYPE_CHECKING:
    from ddpdoctor.check import Training


class MadeBySome(NamedTuple):
    """A call of new_group, the ranks that made it, and those that made fewer groups and not this one."""

    made: GroupMade
    by: tuple[int, ...]
    others: tuple[int, ...]


def made_by_some(training: Training) -> MadeBySome | None:
    """Find it, where all ranks came to their end, in one process each: a rank that failed may have come to make it."""
    ends = {each.pid: each.rank for each in training.of(Left) if each.rank is not None}
    joined = training.of(Joined)
    if not joined or {each.pid for each in joined} != set(ends):
        return None
    if sorted(ends.values()) != list(range(joined[0].world_size)):
        return None
    made = {rank: [each for each in training.of(GroupMade) if each.pid == pid] for pid, rank in ends.items()}
    most, fewest = (choose(len(each) for each in made.values()) for choose in (max, min))
    for group in training.of(GroupMade) if most != fewest else ():
        times = {rank: sum(each.ranks == group.ranks for each in calls) for rank, calls in made.items()}
        by = tuple(rank for rank in sorted(made) if times[rank])
        others = tuple(rank for rank in sorted(made) if not times[rank])
        if by and others and all(len(made[rank]) < most for rank in others):
            return MadeBySome(group, by, others)
    return None


def not_made_by_all(found: MadeBySome) -> Finding:
    """Return who made the group, and who did not."""
    made, by, others = found
    are = "have" if len(by) > 1 else "has"
    return Finding(
        f"new_group({made.ranks}) at {short(made.site)}: {named(list(by[:8]))} {are} called it, "
        f"{named(list(others[:8]))} not; torch numbers groups by these calls, and the next group has another name on "
        f"{named(list(others[:8]))}",
        (
            Evidence(f"new_group({made.ranks})", "the same call on all ranks of the job", named(list(by[:8]))),
            Evidence("no such call", f"new_group({made.ranks})", named(list(others[:8]))),
        ),
        Fix(
            "call new_group on all ranks, those that are not in the group among them; only its members use it",
            diff="-if rank in ranks:\n-    group = dist.new_group(ranks)\n+group = dist.new_group(ranks)\n"
            " if rank in ranks:\n     dist.all_reduce(tensor, group=group)",
        ),
        place(made.site, rank=by[0]),
        severity=Severity.WARNING,
    )
