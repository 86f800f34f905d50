"""Processes that native code has ended by a signal, as faulthandler told it at their end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import read_stack
from ddpdoctor.watch.event_log import CRASH
from ddpdoctor.watch.events import Crashed, Failed, Left, Site
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.monitor.followed import Followed

SAID = re.compile(r"Fatal Python error: (.+)")


def crashes(followed: Followed) -> Iterator[Crashed]:
    """Yield the crashes of a training that were not told yet.

    A dump alone proves none: native code can handle a signal, and go on.
    """
    training = followed.training
    for each in followed.ranks:
        pid = each.reader.pid
        if each.rank < 0 or each.alive or training.of(Left, pid=pid, ended=True):
            continue
        if any(training.of(kind, pid=pid) for kind in (Failed, Crashed)):
            continue
        text = ""
        with suppress(OSError):
            text = each.reader.base.with_suffix(CRASH).read_text(encoding="utf-8", errors="replace")
        said = SAID.search(text)
        stack = tuple(Site(frame.file, frame.line, frame.function) for frame in read_stack(text))
        site = next((frame for frame in stack if is_users(frame.file)), None)
        if said and site:
            yield Crashed(pid=pid, time=time.time(), rank=each.rank, site=site, said=said[1].strip(), stack=stack)
