"""Compares the flight recorder's dumps of several ranks; says in records, in fixed words, who did not come.

The n-th collective of a group is the same one on all its ranks. What differs first is the cause; else it is the rank
that others wait for, and that waits for nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.logs.flight.dumps import Call, Dump
from ddpdoctor.logs.read.lines import ESCAPES
from ddpdoctor.logs.records import Record

ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"})
"""Operations that take as many elements of one type on each rank."""
Calls = dict[int, dict[int, Call]]


@dataclass(frozen=True, slots=True)
class Group:
    """The calls of a process group: for each rank those of its numbers, of which the dump has just one."""

    name: str
    calls: Calls
    waiting: dict[int, Call]
    """The first call of each rank that was not complete."""
    members: frozenset[int]
    """Its ranks; where no dump tells, those that have called something in it."""


def compared(dumps: Sequence[Dump]) -> Iterator[Record]:
    """Yield a record for each thing that keeps the ranks waiting; none where nobody waits."""
    by_rank = {dump.rank: dump for dump in dumps}
    groups = list(_groups(by_rank))
    told = [record for group in groups if (record := _mismatch(group, by_rank))]
    waits = {rank: call for group in groups for rank, call in group.waiting.items()}
    waits |= {rank: dump.transfer for rank, dump in by_rank.items() if dump.transfer}
    if not told and len(dumps) > 1:
        told = [record for group in groups if (record := _late(group, waits, by_rank))]
    if not told and waits:
        told = [_all_wait(waits, by_rank)]
    yield from sorted(told, key=lambda record: record.time or 0)


def _groups(dumps: dict[int, Dump]) -> Iterator[Group]:
    calls: dict[tuple[str, str], Calls] = defaultdict(lambda: defaultdict(dict))
    members: dict[str, set[int]] = defaultdict(set)
    several: set[tuple[str, str, int, int]] = set()
    for rank, dump in dumps.items():
        for call in dump.calls:
            mine = calls[call.backend, call.group][rank]
            if call.number in mine:  # coalesced: several calls of one number, of which none stands for it
                several.add((call.backend, call.group, rank, call.number))
            mine.setdefault(call.number, call)
        for group, ranks in dump.members.items():
            members[group] |= ranks
    for (backend, name), each in calls.items():
        waits = {rank: [call for call in mine.values() if call.waits] for rank, mine in each.items()}
        waiting = {rank: min(ours, key=lambda call: call.number) for rank, ours in waits.items() if ours}
        single = {
            rank: {number: call for number, call in mine.items() if (backend, name, rank, number) not in several}
            for rank, mine in each.items()
        }
        everybody = dumps.keys() if "(default_pg)" in name else each.keys()
        yield Group(name, single, waiting, frozenset(members[name] or everybody))


def _mismatch(group: Group, dumps: dict[int, Dump]) -> Record | None:
    """Find the first number under which two ranks called what does not fit."""
    for number in sorted({number for mine in group.calls.values() for number in mine}):
        same = {rank: mine[number] for rank, mine in sorted(group.calls.items()) if number in mine}
        what = f"at collective {number} of group {group.name}"
        if len({call.operation for call in same.values()}) > 1:
            return _record(f"ranks differ in operation {what}", same, dumps)
        if next(iter(same.values())).operation in ALIKE and len({_amount(call) for call in same.values()}) > 1:
            return _record(f"ranks differ in tensors {what}", same, dumps)
    return None


def _amount(call: Call) -> tuple[int, frozenset[str]]:
    return sum(_product(sizes) for sizes in call.given), frozenset(call.types)


def _product(sizes: Iterable[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _late(group: Group, elsewhere: Mapping[int, Call], dumps: dict[int, Dump]) -> Record | None:
    """Find who has not come where others wait, and does not wait elsewhere."""
    if not group.waiting:
        return None
    first = min(group.waiting.values(), key=lambda call: call.number)
    waits = {rank: call for rank, call in group.waiting.items() if call.number == first.number}
    what = f"collective {first.number} ({first.operation}) of group {group.name}"
    if silent := sorted(group.members - dumps.keys()):
        return _record(f"{_ranks(silent)} left no dump; the others wait in {what}", waits, dumps, silent)
    last = {rank: max(group.calls.get(rank, {0: None})) for rank in group.members}
    late = sorted(rank for rank in group.members - elsewhere.keys() if last[rank] < first.number)
    if not late:
        return None
    before = {rank: group.calls[rank][last[rank]] for rank in late if last[rank]}
    return _record(f"{_ranks(late)} did not call {what}", waits | before, dumps, late)


def _all_wait(waits: dict[int, Call], dumps: dict[int, Dump]) -> Record:
    """Return where all wait, in one collective or for each other."""
    if len(dumps) == 1:
        return _record("one rank waits, and no other dump was read", waits, dumps)
    places = {(call.group, call.number, call.operation) for call in waits.values()}
    how = "the ranks wait in one collective" if len(places) == 1 else "the ranks wait in different collectives"
    return _record(how, waits, dumps)


def _record(said: str, calls: dict[int, Call], dumps: dict[int, Dump], about: Sequence[int] = ()) -> Record:
    """Put it into words: what is wrong, and a line for each rank."""
    lines = [f"flight recorder: {said}", *(_line(rank, call) for rank, call in sorted(calls.items()))]
    rank = about[0] if about else next(iter(sorted(calls)))
    call = calls.get(rank) or next(iter(calls.values()))
    return Record(
        text="\n".join(" ".join(ESCAPES.sub("", line).split()) for line in lines),
        source=str(Path(dumps.get(rank, next(iter(dumps.values()))).name)),
        rank=rank,
        time=max(each.time for each in calls.values()),
        frames=call.frames,
    )


def _line(rank: int, call: Call) -> str:
    state = "waits in" if call.waits else "is through"
    sizes = f", {call.sizes}" if call.sizes else ""
    return f"rank {rank} {state} collective {call.number} ({call.operation}{sizes}){call.site}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")  # noqa: PLR2004
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
