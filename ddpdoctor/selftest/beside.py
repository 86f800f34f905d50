"""A process beside this one: what reads texts, and what watches ranks, each needs a core of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ddpdoctor.launch.forked import forked
from ddpdoctor.selftest.result import SelfTestResult

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ddpdoctor.facets import Check

Tries = Callable[[], Iterable[SelfTestResult]]


@contextmanager
def beside(tries: Tries, checks: tuple[Check, ...]) -> Iterator[Iterator[SelfTestResult]]:
    """Yield the results of what is tried, in its order, from a process that is forked for it: before threads start.

    Where there is no fork, it is tried in this process, once somebody asks for the results.
    """
    if not hasattr(os, "fork"):
        yield iter(tries())
        return
    receiver, process = forked(partial(_tell, tries=tries))
    try:
        yield _results(receiver, {check.code: check for check in checks})
    finally:
        process.terminate()
        process.join()


def _tell(sender: Connection, tries: Tries) -> None:
    for each in tries():
        sender.send((each.check.code, each.broken, each.healthy, each.instrument))
    sender.send(None)


def _results(receiver: Connection, known: dict[str, Check]) -> Iterator[SelfTestResult]:
    """Yield what the process sends.

    Raises:
        RuntimeError: it ended before it had sent everything.
    """
    try:
        while (told := receiver.recv()) is not None:
            code, *rest = told
            yield SelfTestResult(known[code], *rest)
    except EOFError:
        raise RuntimeError("the process that reads logs and sources was ended") from None
