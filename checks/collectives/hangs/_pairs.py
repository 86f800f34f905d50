"""Communications of ranks that met each other: those of one number in one group."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpdoctor.check import Communication, Position, Progress, Site, are_alternatives

from ._messages import ALL, POINT_TO_POINT, named_peer

ROOT = re.compile(r", root (\d+)$")
Pair = tuple[tuple[int, Communication], tuple[int, Communication]]
"""Two ranks, each with a call of its own."""


class Overrun(NamedTuple):
    """A rank that receives, its call, and the send of another rank that is longer than it has room for."""

    rank: int
    takes: Communication
    other: int
    gives: Communication


TENSOR = re.compile(r"\[(?P<sizes>[\d, ]*)\](?: (?!to\b|from\b)(?P<dtype>\w+))?")


def overrun(ranks: Sequence[Position | Progress]) -> Overrun | None:
    """Return the first message that is longer than what it is received into: gloo ends the rank that receives it."""
    known = {each.rank: each for each in ranks if 0 < len(each.recent) < ALL}
    for rank, one in known.items():
        for other, sender in known.items():
            tags = {peer[1] for each in one.recent if (peer := named_peer(each)) and peer[0] == other}
            for tag in sorted(tags):
                takes = [each for each in one.recent if each.operation == "recv" and named_peer(each) == (other, tag)]
                gives = [each for each in sender.recent if each.operation == "send" and named_peer(each) == (rank, tag)]
                for taken, given in zip(takes, gives, strict=False):
                    if _elements(given) > _elements(taken) > 0 and _dtype(given) == _dtype(taken):
                        return Overrun(rank, taken, other, given)
    return None


def _elements(call: Communication) -> int:
    found = TENSOR.match(call.shapes)
    return math.prod(int(each) for each in found["sizes"].split(",") if each.strip()) if found else 0


def _dtype(call: Communication) -> str:
    found = TENSOR.match(call.shapes)
    return (found and found["dtype"]) or ""


class Aimed(NamedTuple):
    """A rank that waits for a message of one rank, its call, and the send of another rank that is meant for it."""

    rank: int
    takes: Communication
    other: int
    gives: Communication


def aimed_past(ranks: Sequence[Position]) -> Aimed | None:
    """Return a message that its receiver expects of another rank, where each rank has posted both ways in vain.

    The order of the calls is then not at fault: all that is to be sent and received is under way.
    """
    if (left := _left_over(ranks)) is None:
        return None
    sent, awaited = left
    all_ranks = {each.rank for each in ranks}
    if {source for source, _, _ in sent} != all_ranks or {target for _, target, _ in awaited} != all_ranks:
        return None
    for (source, target, tag), call in sent.items():
        for (expected, receiver, its_tag), takes in awaited.items():
            if (receiver, its_tag) == (target, tag) and expected != source:
                return Aimed(receiver, takes, source, call)
    return None


def tagged_apart(ranks: Sequence[Position]) -> Aimed | None:
    """Return the first message that a rank waits for by another tag than that of one that was sent to it in vain."""
    if (left := _left_over(ranks)) is None:
        return None
    sent, awaited = left
    pairs = (
        Aimed(receiver, takes, source, gives)
        for (source, receiver, tag), takes in awaited.items()
        for (giver, target, its_tag), gives in sent.items()
        if (giver, target) == (source, receiver) and its_tag != tag
    )
    return min(pairs, key=lambda each: each.takes.time, default=None)


Message = tuple[int, int, int]
"""From whom to whom, and the tag."""


def _left_over(ranks: Sequence[Position]) -> tuple[dict[Message, Communication], dict[Message, Communication]] | None:
    """Return the first messages that nobody takes, and those that nobody sends; None where not all calls are known."""
    if not all(0 < len(each.recent) < ALL for each in ranks):
        return None
    given: dict[Message, list[Communication]] = defaultdict(list)
    taken: dict[Message, list[Communication]] = defaultdict(list)
    for each in ranks:
        for call in each.recent:
            if call.operation in POINT_TO_POINT and (peer := named_peer(call)):
                key = (each.rank, *peer) if call.operation == "send" else (peer[0], each.rank, peer[1])
                (given if call.operation == "send" else taken)[key].append(call)
    return _more(given, taken), _more(taken, given)


def _more(
    these: Mapping[Message, Sequence[Communication]], those: Mapping[Message, Sequence[Communication]]
) -> dict[Message, Communication]:
    others = {key: len(those.get(key, ())) for key in these}
    return {key: calls[others[key]] for key, calls in these.items() if len(calls) > others[key]}


class Met(NamedTuple):
    """A call of a rank, and what another rank called at its turn."""

    rank: int
    call: Communication
    other: int
    theirs: Communication


def root_of(call: Communication) -> str:
    """Return the rank of the group from which, or to which, all others send; empty where there is none."""
    found = ROOT.search(call.shapes)
    return found[1] if found else ""


def met_elsewhere(recent: Mapping[int, Sequence[Communication]]) -> Iterator[Met]:
    """Yield the calls that met one of another line, by the last communications of each rank, oldest first."""
    for rank, calls in recent.items():
        for other, others in recent.items():
            theirs = {(each.group, each.number): each for each in others}
            for call in calls if other != rank else ():
                met = theirs.get((call.group, call.number))
                if call.site is not None and met is not None and met.site != call.site:
                    yield Met(rank, call, other, met)


def in_branches(one: Site | None, other: Site | None) -> bool:
    """Whether two lines stand in the two branches of one ``if``."""
    if one is None or other is None or one.file != other.file:
        return False
    return are_alternatives(one.file, one.line, other.line)
