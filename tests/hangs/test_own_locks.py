"""What a rank waits for that it has made itself: a lock that it holds, a barrier of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.collectives.hangs._lost import barrier_of_threads, taken_itself
from ddpdoctor.watch.events import Doing, Position, Site

if TYPE_CHECKING:
    from helpers import Script

SOURCE = """\
import threading
lock = threading.{kind}()
sync = threading.Barrier(2)
def register(name):
    with lock:
        registry[name] = 1
def build():
    with lock:
        register("encoder")
def load():
    register("decoder")
    sync.wait()
    done.wait()
"""
ASKS, HOLDS, BUILDS, LOADS, SYNCS, WAITS = 5, 8, 9, 11, 12, 13


@pytest.mark.parametrize(
    ("kind", "caller", "line"), [("Lock", BUILDS, HOLDS), ("Lock", LOADS, 0), ("RLock", BUILDS, 0)]
)
def test_a_lock_that_a_caller_has_taken(script: Script, kind: str, caller: int, line: int) -> None:
    """A thread can take an RLock twice: what it waits for is another one."""
    path = script(SOURCE.format(kind=kind))
    stack = (Site(path, ASKS, "register"), Site(path, caller, "build"))
    lost = Position(rank=0, pid=1, doing=Doing.STANDING, seconds=40, site=stack[0], stack=stack)
    assert taken_itself(lost) == line


def test_a_barrier_of_threads(script: Script) -> None:
    """Of what its file makes nothing but a Barrier is one."""
    path = script(SOURCE.format(kind="Lock"))
    assert barrier_of_threads(Site(path, SYNCS, "load")) == "sync"
    assert not barrier_of_threads(Site(path, WAITS, "load"))
    assert not barrier_of_threads(None)
