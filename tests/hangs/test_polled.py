"""A rank that asks again and again: what it asks for, and whether anybody is left who could change the answer."""

from __future__ import annotations

import concurrent.futures.thread
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.host.stack import Frame
from ddpdoctor.source.training.polls import flag_of, question, search, store_asked
from ddpdoctor.stuck.looks.look import Seen
from ddpdoctor.stuck.looks.spy import Stack, parse
from ddpdoctor.stuck.waits import polled
from ddpdoctor.watch.monitor.seen.activity import Activity
from ddpdoctor.watch.monitor.seen.usage import Usage

SOURCE = """
def ready(): ...
class Feed:
    def __init__(self):
        self.ready, self.count = None, 0
        self.ready = False
    @property
    def full(self):
        return False
    def wait(self, store, other):
        while not self.ready:
            time.sleep(0.1)
        while True:
            if store.check(["go"]):
                break
            print("waiting", flush=True)
            time.sleep(1)
        while not self.full:
            time.sleep(0.1)
        while not self.ready:
            self.ready = other.look()
        while not self.ready and time.time() < 9:
            time.sleep(0.1)
        while not other.value:
            time.sleep(0.1)
        while not os.path.exists("x"):
            time.sleep(0.1)
        while True:
            if self.ready:
                break
            other.pump()
        for _ in other:
            time.sleep(0.1)
        while True:
            try:
                return connect(other)
            except OSError:
                time.sleep(0.1)
        while True:
            try:
                connect(other)
            except OSError:
                time.sleep(0.1)
        waited = 0
        while not os.path.exists("y"):
            time.sleep(0.1)
            waited += 1
            if waited % 30 == 0:
                print("still waiting", waited)
            if waited > 600:
                raise TimeoutError
        while waited < 60:
            time.sleep(0.1)
            waited += 1
"""
FLAG, STORE, PROPERTY, CHANGES, TIMED, SHARED, FILE, PUMPS, FOR, TRIES, GOES_ON, COUNTS, COUNTED = (
    11,
    16,
    18,
    20,
    22,
    24,
    26,
    30,
    32,
    37,
    42,
    45,
    52,
)


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return a script with loops that ask."""
    path = tmp_path / "feed.py"
    path.write_text(SOURCE)
    return str(path)


def asking(script: str, line: int, *, alone: bool = True) -> Seen:
    """Return a rank that was twice at a line."""
    stack = Stack((Frame(script, line, "wait"),), alone=alone)
    return Seen(os.getpid(), 1.0, looks=[stack, stack])


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (FLAG, "while not self.ready"),
        (STORE, "until store.check(['go'])"),
        (TIMED, "while not self.ready and time.time() < 9"),
        (FILE, "while not os.path.exists('x')"),
        (CHANGES, ""),
        (PUMPS, ""),
        (FOR, ""),
        (TRIES, "until this raises no OSError: connect(other)"),
        (GOES_ON, ""),
        (COUNTS, "while not os.path.exists('y')"),
        (COUNTED, ""),
    ],
)
def test_what_a_loop_asks(script: str, line: int, asked: str) -> None:
    """Where it does nothing else."""
    assert polled.asked_text(script, line) == asked


@pytest.mark.parametrize(
    ("line", "flag"), [(FLAG, "self.ready"), (PROPERTY, ""), (TIMED, ""), (SHARED, ""), (FILE, ""), (STORE, "")]
)
def test_a_flag_is_what_only_its_own_process_changes(script: str, line: int, flag: str) -> None:
    """No property, no call, nothing that another process can set."""
    found = question(script, line)
    assert found is not None
    assert flag_of(script, found.asked) == flag
    assert bool(store_asked(found.asked)) == (line == STORE)


def test_a_flag_that_nobody_is_left_to_set(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread, and no handler of a signal."""
    monkeypatch.setattr(polled, "_has_handlers", lambda _: False)
    found = polled.of_poll(asking(script, FLAG), [], all_wait=False)
    assert found is not None
    assert found.what.startswith("self.ready to change")
    assert polled.of_poll(asking(script, FLAG, alone=False), [], all_wait=False) is None
    moved = asking(script, FLAG)
    moved.looks.append(Stack((Frame(script, STORE, "wait"),), alone=True))
    assert polled.of_poll(moved, [], all_wait=False) is None
    monkeypatch.setattr(polled, "_has_handlers", lambda _: True)
    assert polled.of_poll(asking(script, FLAG), [], all_wait=False) is None


def test_a_rank_that_only_asks_is_not_at_work(script: str) -> None:
    """Whatever it waited for a core: on a busy host it does so after each sleep. One that is helped is at work."""
    asks = asking(script, FILE)
    assert polled.only_asks(asks)
    assert not polled.only_asks(asking(script, FILE, alone=False))
    assert not polled.only_asks(asking(script, PUMPS))
    inside = Stack((Frame("/usr/lib/python3.11/posixpath.py", 4, "exists"), *asks.stack.frames), alone=True)
    assert not polled.only_asks(replace(asks, looks=[inside, inside]))
    helped = Usage(asks.pid, 0.0, helpers=frozenset({7}))
    assert not polled.only_asks(replace(asks, activity=Activity(last=helped)))


def test_a_rank_that_counts_how_often_it_asks_is_not_at_work(script: str) -> None:
    """Its own counts say nothing of the answer; those of a loop around it do, and so do other variables."""
    asks, frame = asking(script, COUNTS), Frame(script, COUNTS, "wait")
    counts = [Stack((frame,), values=((("waited", n), ("epoch", 2)),), alone=True) for n in (15, 20)]
    assert polled.only_asks(replace(asks, looks=counts))
    others = [Stack((frame,), values=((("waited", n), ("epoch", n)),), alone=True) for n in (15, 20)]
    assert not polled.only_asks(replace(asks, looks=others))
    found = question(script, COUNTS)
    assert found is not None
    assert (found.counts, found.limited) == (frozenset({"waited"}), True)


def test_a_key_that_no_rank_is_left_to_set(script: str) -> None:
    """All others wait in communications, and have no other thread in the script."""
    other = Stack((Frame(script, FLAG, "wait"),))
    found = polled.of_poll(asking(script, STORE, alone=False), [other], all_wait=True)
    assert found is not None
    assert "an answer of the ranks' store to store.check(['go'])" in found.what
    assert polled.of_poll(asking(script, STORE), [other], all_wait=False) is None
    busy = Stack(others=(("Thread-1", (Frame(script, FLAG, "wait"),)),))
    assert polled.of_poll(asking(script, STORE), [busy], all_wait=True) is None


@pytest.mark.parametrize(("inner", "alone"), [(concurrent.futures.thread.__file__, True), (threading.__file__, False)])
def test_a_thread_that_only_serves_is_none(script: str, inner: str, *, alone: bool) -> None:
    """A timer of ``threading`` is one that will call something of the script's."""
    threads = [
        {"os_thread_id": 7, "thread_name": "MainThread", "frames": [frame(script)]},
        {"os_thread_id": 8, "thread_name": "x", "frames": [frame(inner), frame(threading.__file__)]},
    ]
    stack = parse(json.dumps(threads), 7)
    assert stack is not None
    assert stack.alone == alone


def frame(file: str) -> dict[str, object]:
    """Return one as py-spy writes it."""
    return {"name": "wait", "filename": file, "line": FLAG, "locals": []}


SEARCH = """
def negative(labels, anchor):
    while True:
        j = randrange(len(labels))
        if labels[j] != labels[anchor]:
            return j

def train(loader):
    while True:
        for batch in loader:
            step(batch)
            if done():
                return
        log()
        if late():
            break
"""


@pytest.mark.parametrize(("line", "told"), [(4, "until labels[j] != labels[anchor]"), (11, None), (14, None)])
def test_a_search_that_need_not_end_is_told_from_a_training(tmp_path: Path, line: int, told: str | None) -> None:
    """One test is its only way out; a training's loop has more, or none."""
    path = tmp_path / "train.py"
    path.write_text(SEARCH, encoding="utf-8")
    found = search(str(path), line)

    assert (str(found) if found else None) == told
