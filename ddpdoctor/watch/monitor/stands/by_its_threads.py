"""Ranks that stand, and wait for another thread of theirs: where that is, and whether it only sleeps for a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.host.process.system_calls import sleeps
from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import calls_at
from ddpdoctor.watch.events import Doing
from ddpdoctor.watch.monitor.seen.threads import in_users_code

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.watch.events import Position, Site


def with_threads(found: Iterable[Position], bases: Collection[Path]) -> list[Position]:
    """Ask ranks that wait for a thread of their own, all at once, for their other threads.

    One whose thread is in a sleep that ends soon asks, as one does that sleeps itself: a writer that tries again.
    """
    found = list(found)
    keeps = {each.pid for each in found if each.awaited is not None and each.awaited.thread}
    named = in_users_code([each for each in bases if int(each.name) in keeps]) if keeps else {}
    return [_told(each, named.get(each.pid)) for each in found]


def _told(position: Position, threads: tuple[tuple[str, Site], ...] | None) -> Position:
    naps = position.doing is Doing.STANDING and any(_sleeps_there(site) for _, site in threads or ())
    asks = naps and any(sleeps(position.pid, int(each.name)) for each in thread_folders(position.pid))
    return replace(position, threads=threads, doing=Doing.ASKING if asks else position.doing)


def _sleeps_there(site: Site) -> bool:
    return any(last_name(each.func) == "sleep" for each in calls_at(site.file, site.line))
