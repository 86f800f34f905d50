"""Communications of ranks that met each other: those of one number in one group."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ddpdoctor.check import Communication, Position, Progress, Site, are_alternatives

POINT_TO_POINT = frozenset({"send", "recv"})
"""Operations that meet no one of the same number."""
BATCH = "batch_isend_irecv"
BY_HANDLE = "Work.wait of "
MESSAGES = POINT_TO_POINT | {BATCH, *(f"{BY_HANDLE}{each}" for each in (*POINT_TO_POINT, BATCH))}
"""What a rank waits in for a message, or for somebody to take one."""
ROOT = re.compile(r", root (\d+)$")
Pair = tuple[tuple[int, Communication], tuple[int, Communication]]
"""Two ranks, each with a call of its own."""


PEER = re.compile(r" (?:to|from) (?P<peer>-?\d+)(?:, tag (?P<tag>\d+))?$")
FEWEST = 2  # messages in a row
ALL = 60  # communications of a rank: with fewer of them all that it made since its start are known


class Unsent(NamedTuple):
    """A rank that waits for a message, the rank that it names, and how many of them were received and sent before."""

    waits: Position
    other: Position
    received: int
    sent: int


def named_peer(call: Communication) -> tuple[int, int] | None:
    """Return the rank that a message goes to or comes from, and its tag."""
    found = PEER.search(call.shapes)
    return (int(found["peer"]), int(found["tag"] or 0)) if found else None


def begun(position: Position) -> Communication | None:
    """Return the call that a rank waits in, or for by its handle: the last one of that name, else the last one."""
    operation = position.operation.removeprefix(BY_HANDLE)
    calls = [each for each in position.recent if each.operation == operation] or [*position.recent]
    return calls[-1] if calls else None


def unsent(ranks: Sequence[Position]) -> Unsent | None:
    """Return a rank that waits for one message more than the other side, which is past its sends, has sent."""
    known = {each.rank: each for each in ranks if 0 < len(each.recent) < ALL}
    for waits in known.values():
        last = waits.recent[-1]
        told = named_peer(last) if last.operation == "recv" and waits.operation in MESSAGES else None
        other = known.get(told[0]) if told else None
        if told is None or other is None or other.operation in MESSAGES:
            continue
        took = [each for each in waits.recent if each.operation == "recv" and named_peer(each) == told]
        gave = [each for each in other.recent if each.operation == "send" and named_peer(each) == (waits.rank, told[1])]
        if len(gave) < len(took):
            return Unsent(waits, other, len(took) - 1, len(gave))
    return None


class Round(NamedTuple):
    """A rank that takes one message more in a row than another one has sent, which waits for the answer; both calls."""

    rank: int
    takes: Communication
    other: int
    gives: Communication
    sent: int


def one_more_in_a_row(ranks: Sequence[Position]) -> Round | None:
    """Return it, where a line has received several messages in a row, and another line has sent as many.

    Where both sides only began in the wrong order there are no such rows.
    """
    for one in ranks:
        for other in ranks:
            took, gave = _row(one.recent, "recv"), _row(other.recent[:-1], "send")
            if (
                one is other
                or len(took) <= FEWEST
                or len(gave) != len(took) - 1
                or other.recent[-1].operation != "recv"
            ):
                continue
            peers = named_peer(took[-1]), named_peer(gave[-1]), named_peer(other.recent[-1])
            if [each and each[0] for each in peers] == [other.rank, one.rank, one.rank]:
                return Round(one.rank, took[-1], other.rank, gave[-1], len(gave))
    return None


def _row(calls: Sequence[Communication], operation: str) -> list[Communication]:
    """Return the last calls of a rank that are of one line and one operation."""
    found: list[Communication] = []
    for each in reversed(calls):
        if each.operation != operation or each.site is None or (found and each.site != found[0].site):
            break
        found.append(each)
    return found


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


def unanswered(ranks: Sequence[Position]) -> Position | None:
    """Return the one rank that waits for a message, or to get rid of one, where all others wait in collectives.

    None where one of them is known to have been in a message with it: that can be under way.
    """
    found = [each for each in ranks if each.operation in MESSAGES]
    if len(found) != 1 or len(ranks) == 1:
        return None
    calls = (call for each in ranks if each is not found[0] for call in each.recent if call.operation in POINT_TO_POINT)
    return None if any((named_peer(call) or (-1,))[0] == found[0].rank for call in calls) else found[0]


def unanswered_by_handle(ranks: Sequence[Position]) -> list[Position]:
    """Return the several ranks that wait for messages which they began before, where another one is in a collective.

    One of them can wait for that rank, or they for each other.
    """
    found = [each for each in ranks if each.operation in MESSAGES]
    by_handle = all(each.operation.startswith(BY_HANDLE) for each in found)
    return found if by_handle and FEWEST <= len(found) < len(ranks) else []


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
