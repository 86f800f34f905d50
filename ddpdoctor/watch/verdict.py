"""What a training that stands has come to: one decision, so that exactly one check speaks of a hang."""

from __future__ import annotations

import ast
import enum
import functools
from pathlib import Path

from ddpdoctor.model import Evidence, Table
from ddpdoctor.watch.events import Communication, Doing, EpochEnded, EpochStarted, Joining, Position, Site, Stalled
from ddpdoctor.watch.training import Training

RECENT = 4  # communications of a rank that a report shows
JOINING = "init_process_group"
GONE = (Doing.FAILED, Doing.DIED, Doing.STOPPED)


class Kind(enum.Enum):
    """What stands in the way."""

    GONE = "a rank failed, was killed or was stopped"
    NEVER_JOINED = "a rank never joined the process group"
    LEFT = "a rank has ended while the others go on"
    STANDS = "a rank stands still outside of any communication"
    WORKS = "a rank works while the others wait for it"
    SHAPES = "ranks give different shapes to one collective"
    ORDER = "ranks call different collectives"
    GUARDED = "a collective is called by some ranks only"
    UNEVEN = "ranks have different numbers of batches"
    RECEIVES = "all ranks wait to receive"
    SAME = "all ranks wait in the same collective"
    DIVERGED = "ranks are at different places"


def kind(event: Stalled, training: Training) -> Kind:
    """Decide; what is seen for sure comes before what is concluded."""
    doings = {position.doing for position in event.ranks}
    if not doings & {*GONE, Doing.WORKING} and absent(event, training):
        return Kind.NEVER_JOINED
    for doing, verdict in (
        *((each, Kind.GONE) for each in GONE),
        (Doing.ENDED, Kind.LEFT),
        (Doing.WORKING, Kind.WORKS),
        (Doing.STANDING, Kind.STANDS),
    ):
        if doing in doings:
            return verdict
    return _all_wait(event, training)


def absent(event: Stalled, training: Training) -> tuple[int, ...]:
    """List the ranks that have not called init_process_group, where those that wait do so in it."""
    if any(position.operation != JOINING for position in event.doing(Doing.WAITING)):
        return ()
    pids = {position.pid for position in event.ranks}
    came = {each.rank for each in training.of(Joining) if each.pid in pids}
    return tuple(rank for rank in range(event.world_size) if rank not in came)


def _all_wait(event: Stalled, training: Training) -> Kind:
    operations = {position.operation for position in event.ranks}
    last = [position.recent[-1] if position.recent else None for position in event.ranks]
    if operations <= {"recv", "send"}:
        return Kind.RECEIVES
    if mismatch := first_mismatch(event):
        (_, ours), (_, theirs) = mismatch
        return Kind.SHAPES if ours.operation == theirs.operation else Kind.ORDER
    if len(operations) == 1 and len({each.site for each in last if each}) <= 1:
        return Kind.SAME
    if uneven(event, training):
        return Kind.UNEVEN
    if guarded(event):
        return Kind.GUARDED
    return Kind.DIVERGED


def first_mismatch(event: Stalled) -> tuple[tuple[int, Communication], tuple[int, Communication]] | None:
    """Give the first two communications, with their ranks, that should match and do not: the n-th of one group.

    Only those count that Python begins; send and recv match no one of the same number.
    """
    calls: dict[tuple[str, int], list[tuple[int, Communication]]] = {}
    for position in event.ranks:
        for each in position.recent:
            if each.group and each.operation not in {"send", "recv"}:
                calls.setdefault((each.group, each.number), []).append((position.rank, each))
    for _, alike in sorted(calls.items(), key=lambda item: item[1][0][1].time):
        (rank, ours), *others = alike
        for other, theirs in others:
            same_shapes = ours.shapes == theirs.shapes or ours.operation in UNEQUAL
            if ours.operation != theirs.operation or not same_shapes:
                return (rank, ours), (other, theirs)
    return None


UNEQUAL = frozenset({"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"})
"""Operations to which ranks rightly give different shapes."""


def uneven(event: Stalled, training: Training) -> dict[int, int]:
    """Give the batches of the latest pass of a loader by rank, if one rank has left it and another goes on in it."""
    passes = {rank: each for rank, each in training.by_rank(EpochStarted).items() if each.training}
    if len({(each.loader, each.number) for each in passes.values()}) != 1 or len(passes) < len(event.ranks):
        return {}
    loader, number = next((each.loader, each.number) for each in passes.values())
    ended = training.by_rank(EpochEnded, loader=loader, number=number)
    counts = {each.rank: each.batches for each in ended.values() if each.rank is not None}
    going_on = [rank for rank in passes if rank not in counts]
    return counts if counts and going_on else {}


def guarded(event: Stalled) -> tuple[Position, str] | None:
    """Give a rank that waits in a collective which stands under a condition on the rank, and that condition."""
    for position in event.ranks:
        if position.site is not None and position.operation != "backward" and (test := condition(position.site)):
            return position, test
    return None


def condition(site: Site) -> str:
    """Give the innermost ``if`` around a line whose test depends on the rank; empty where there is none."""
    tree = _tree(site.file)
    names = _rank_names(tree)
    found = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.body[0].lineno <= site.line <= (node.body[-1].end_lineno or 0):
            used = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
            test = ast.unparse(node.test)
            if used & names or any(word in test.lower() for word in RANK_WORDS):
                found = test
    return found


RANK_WORDS = ("rank", "is_main", "is_master", "main_process")


def _rank_names(tree: ast.Module) -> set[str]:
    """Name the variables that are assigned from something about the rank."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "rank" in ast.unparse(node.value).lower()
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@functools.cache
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def where(position: Position) -> str:
    """Say in words what a rank does."""
    at = f" at {short(position.site)}" if position.site else ""
    if position.doing is Doing.WAITING:
        return f"waits in {position.operation}{at}"
    function = f" in {position.function}" if position.function not in {"", "<module>"} else ""
    return f"{position.doing.value}{function}{at}"


def short(site: Site | None) -> str:
    """Give a line without the folders."""
    return f"{Path(site.file).name}:{site.line}" if site else ""


def seen(event: Stalled) -> tuple[Evidence, ...]:
    """Say what each rank does, and what it did last."""
    return tuple(
        Evidence(where(position), "", f"rank {position.rank}, for {position.seconds:.0f} s") for position in event.ranks
    ) + tuple(
        Evidence(f"under way: {position.pending[0]}", "", f"rank {position.rank}, torch's flight recorder")
        for position in event.ranks
        if position.pending and len({each.pending[:1] for each in event.ranks}) > 1
    )


def table(event: Stalled) -> Table:
    """List each rank's last communications: a mismatched pair often shows at a later, innocent one."""
    return Table(
        ("rank", "steps", "batches", "last communications, latest last"),
        tuple(
            (
                position.rank,
                position.steps,
                position.batches,
                ", ".join(
                    f"{each.operation}{f'({each.shapes})' if each.shapes else ''} {short(each.site)}".strip()
                    for each in position.recent[-RECENT:]
                )
                or "none",
            )
            for position in event.ranks
        ),
    )
