"""A rank that asks for something again and again which can never come: nobody is left who could change the answer."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from ddpdoctor.host.process.handlers import handled
from ddpdoctor.host.process.waits.wait import THE_STORE, Awaited
from ddpdoctor.source.training.polls import Question, flag_of, question, store_asked
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.look import Seen
    from ddpdoctor.stuck.looks.spy import Stack

REAL_TIME = 32  # the first signal that scripts do not use by a name of its own
OWN_SIGNALS = {signal.SIGINT, signal.SIGCHLD}
"""Those that Python itself, and torch's data loader, have handlers for."""


def of_poll(seen: Seen, others: Iterable[Stack], *, all_wait: bool) -> Awaited | None:
    """Return what a rank asks for, where it was in one such loop at each look, and the answer stays what it is.

    ``others`` are the stacks of the other ranks; ``all_wait`` that they are all there, and wait in communications.
    """
    first, place = _asked(seen), next(map(_users, seen.looks), None)
    if first is None or first.limited or place is None:
        return None
    flag = flag_of(place.file, first.asked)
    if flag and seen.stack.alone and not _has_handlers(seen.pid):
        return Awaited(
            f"{flag} to change, which its own loop does not do, and no other thread of it runs",
            "look in its output for the exception of the thread that was to change it, and let the loop end with it",
        )
    call = store_asked(first.asked)
    if call and all_wait and not any(each.others for each in others):
        return Awaited(
            f"an answer of {THE_STORE} to {call}, which changes when a rank sets the key, while all others wait",
            "set the key on a rank before that rank waits for the others",
        )
    return None


def only_asks(seen: Seen) -> bool:
    """Whether a rank does nothing but ask, sleep between two questions and count them: whatever the kernel counts.

    On a busy host it waits for a core whenever a sleep ends, as one at work does.
    """
    bare = all(each.frames and is_users(each.frames[0].file) for each in seen.looks)
    helped = seen.activity.last is not None and bool(seen.activity.last.helpers)
    asked = _asked(seen)
    return bare and not helped and seen.stack.alone and asked is not None and _stays(seen.looks, asked.counts)


def _stays(looks: Sequence[Stack], counts: Collection[str]) -> bool:
    """Whether looks at a loop differ by its own counts alone, and by the line of it."""
    one = looks[0]
    return len(looks) > 1 and all(
        each.frames[1:] == one.frames[1:]
        and each.values[1:] == one.values[1:]
        and _but(each.values, counts) == _but(one.values, counts)
        for each in looks
    )


def _but(values: Sequence[Sequence[tuple[str, int]]], counts: Collection[str]) -> list[tuple[str, int]]:
    """Return the integers of the innermost frame, but for these."""
    return [each for each in (values[0] if values else ()) if each[0] not in counts]


def _asked(seen: Seen) -> Question | None:
    """Return what a rank asks for, where it was in one such loop at each look."""
    inner = [_users(each) for each in seen.looks]
    asked = [question(each.file, each.line) if each else None for each in inner]
    first = next(iter(asked), None)
    return None if any(each is None or first is None or each.asked is not first.asked for each in asked) else first


def asked_text(file: str, line: int) -> str:
    """Return the condition that a loop asks again and again; empty where it does more than that."""
    return str(question(file, line) or "")


def _users(stack: Stack) -> Frame | None:
    return next((each for each in stack.frames if is_users(each.file)), None)


def _has_handlers(pid: int) -> bool:
    """Whether a signal has a handler of the script's own, which could change anything; also where that is not known."""
    found = handled(pid)
    return found is None or any(each < REAL_TIME and each not in OWN_SIGNALS for each in found)
