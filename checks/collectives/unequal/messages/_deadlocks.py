"""How ranks are told that all wait for messages: in a circle, or with too few sent."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ambiguity,
    Communication,
    Evidence,
    Finding,
    Fix,
    Position,
    Site,
    Stalled,
    calls_at,
    place,
)

from ...hangs._messages import (
    POINT_TO_POINT,
    begun,
    named_peer,
    one_more_in_a_row,
    unanswered_by_handle,
)
from ...hangs._pairs import aimed_past
from ...hangs._told import seen, short, table, where
from ._rounds import COUNTED, sends_first

AT_ONCE = Fix(
    "let one side send first, or post both at once",
    diff="-dist.recv(incoming, peer)\n-dist.send(outgoing, peer)\n"
    "+for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing, peer),\n"
    "+                                   dist.P2POp(dist.irecv, incoming, peer)]):\n+    work.wait()",
)
BOTH_SIDES = Fix(
    "post each message on both sides: the first and the last rank of a row have one neighbour",
    diff="-peer = (rank + 1) % world_size\n-ops.append(dist.P2POp(dist.irecv, incoming, peer))\n"
    "+if rank + 1 < world_size:\n+    ops.append(dist.P2POp(dist.irecv, incoming, rank + 1))",
)


def deadlock(event: Stalled) -> Finding:
    told = "; ".join(_waiting(each) for each in event.ranks[:4])
    remains = sends_first(event)
    return Finding(
        f"no message is on its way: {told}",
        seen(event),
        COUNTED if remains else AT_ONCE,
        place(event.ranks[0].site, rank=event.ranks[0].rank),
        ambiguity=remains,
        table=table(event),
    )


def one_more(event: Stalled) -> Finding | None:
    """Find a rank whose loop receives once more than the other one's sends, which waits for the answer."""
    found = one_more_in_a_row(event.ranks)
    if found is None:
        return None
    return Finding(
        f"rank {found.rank} waits at {short(found.takes.site)} for message {found.sent + 1} in a row of rank "
        f"{found.other}, which has sent {found.sent} at {short(found.gives.site)}, and waits for the answer",
        (
            Evidence(f"{found.sent + 1} receives in a row", f"{found.sent}", f"rank {found.rank}, {found.takes.site}"),
            Evidence(f"{found.sent} sends in a row", f"{found.sent + 1}", f"rank {found.other}, {found.gives.site}"),
            *seen(event),
        ),
        COUNTED,
        place(found.takes.site, rank=found.rank),
        table=table(event),
    )


def past(event: Stalled) -> Finding | None:
    """Find a rank that receives of one rank what another one sends: of a ring, both sides name the same neighbour."""
    found = aimed_past(event.ranks)
    if found is None:
        return None
    of, to = named_peer(found.takes), named_peer(found.gives)
    assert of is not None and to is not None  # noqa: S101, PT018 - else it would be no message
    return Finding(
        f"rank {found.rank} receives from rank {of[0]} at {short(found.takes.site)}, and what is sent to it comes from "
        f"rank {found.other}, at {short(found.gives.site)}: the two sides name different ranks, so no message is taken",
        (
            Evidence(f"recv from {of[0]}", f"recv from {found.other}", f"rank {found.rank}, {found.takes.site}"),
            Evidence(f"send to {to[0]}", f"send to {found.rank}", f"rank {found.other}, {found.gives.site}"),
            *seen(event),
        ),
        Fix(
            "receive from the rank that sends: around a ring each sends to the next, and receives from the one before",
            diff=" dist.isend(outgoing, dst=(rank + 1) % world_size)\n"
            "-dist.irecv(incoming, src=(rank + 1) % world_size)\n+dist.irecv(incoming, src=(rank - 1) % world_size)",
        ),
        place(found.takes.site, rank=found.rank),
        table=table(event),
    )


def unmatched(event: Stalled) -> Finding | None:
    """Find a rank that sends while the other one receives: what was sent is not what is waited for."""
    sends = [each for each in event.ranks if each.operation.endswith("send")]
    receives = [each for each in event.ranks if each.operation.endswith("recv")]
    if len(event.ranks) != 2 or not sends or not receives:  # noqa: PLR2004 - the two are each other's
        return None
    tags = {_tag(each.site) for each in event.ranks}
    literal = " and ".join(f"tag={_tag(each.site)} at {short(each.site)}" for each in (sends[0], receives[0]))
    cause = f": {literal}" if len(tags) > 1 and all(map(str.isdecimal, tags)) else ""
    tag = _tag(sends[0].site) if cause else "7"
    return Finding(
        f"rank {sends[0].rank} waits in send at {short(sends[0].site)}, and rank {receives[0].rank} in recv at "
        f"{short(receives[0].site)}, and the two do not belong together{cause}",
        seen(event),
        Fix(
            "give both sides the same tag and the same group",
            diff=f" dist.send(x, dst={receives[0].rank}, tag={tag})\n+dist.recv(x, src={sends[0].rank}, tag={tag})",
        ),
        place(receives[0].site, rank=receives[0].rank),
        ambiguity=None
        if cause
        else Ambiguity(
            ("their tags differ", "their groups differ", "one of them was called once more than the other"),
            "ddpdoctor run -- torchrun ...   # shows both calls with peer, tag and number",
        ),
        table=table(event),
    )


def _tag(site: Site | None) -> str:
    """Return the tag that a line names, as it is written there; 0 where it names none."""
    for call in calls_at(site.file, site.line) if site else ():
        for each in call.keywords:
            if each.arg == "tag":
                return ast.unparse(each.value)
    return "0"


def nobody(event: Stalled) -> Finding | None:
    for each, call in ((rank, call) for rank in event.ranks for call in _under_way(rank)):
        told = named_peer(call)
        if told is not None and not 0 <= told[0] < event.world_size:
            way = "sends to" if call.operation == "send" else "waits for a message of"
            return Finding(
                f"rank {each.rank} {way} rank {told[0]}, and the last rank of this job is {event.world_size - 1}",
                (
                    Evidence(
                        f"{call.operation} {'to' if call.operation == 'send' else 'from'} {told[0]} at "
                        f"{short(call.site)}",
                        f"a rank from 0 to {event.world_size - 1}",
                        f"rank {each.rank}",
                    ),
                    *seen(event),
                ),
                Fix(
                    "ranks count from 0; around a ring the next one is taken modulo the world size",
                    diff="-dist.send(x, dst=rank + 1)\n+dist.send(x, dst=(rank + 1) % dist.get_world_size())",
                ),
                place(call.site, rank=each.rank),
            )
    return None


def _under_way(position: Position) -> list[Communication]:
    """Return the messages that a rank can be waiting for: the last, and those of its line, which a batch has."""
    own = [each for each in position.recent if each.operation in POINT_TO_POINT]
    return [each for each in own if each is own[-1] or each.site == position.site]


def _waiting(position: Position) -> str:
    call = begun(position)
    peer = call.shapes.partition("]")[2] if call is not None else ""
    return f"rank {position.rank} waits in {position.operation}{peer} at {short(position.site)}"


def posted(event: Stalled) -> Iterator[Finding]:
    """Yield that several ranks wait for messages that they posted, and that others are in no message."""
    waits = unanswered_by_handle(event.ranks)
    others = [each for each in event.ranks if each not in waits]
    told = "; ".join(f"rank {each.rank} {where(each)}" for each in [*waits[:3], *others[:3]])
    names = ", ".join(f"rank {each.rank}" for each in others[:3])
    if waits:
        yield Finding(
            f"messages do not arrive: {told}",
            seen(event),
            BOTH_SIDES,
            place(waits[0].site, rank=waits[0].rank),
            ambiguity=Ambiguity(
                (
                    f"one of them names {names}, which has posted no message for it",
                    "they name each other, and what one sends the other does not receive: order, tag or number",
                ),
                "ddpdoctor run -- torchrun ...   # counts the messages of each two ranks",
            ),
            table=table(event),
        )
