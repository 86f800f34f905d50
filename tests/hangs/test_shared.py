"""Locks by two names, and what processes share: as the lines of the source tell it, without a process that hangs."""

from __future__ import annotations

import threading
from multiprocessing import queues
from pathlib import Path

import pytest

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.host.stack import Frame
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.stuck.waits.kept import of_threads

OF_THREADS = Awaited("a lock, a queue or a thread of its own", thread=True)
SAVER = """\
import threading
import torch.distributed as dist

class Saver(threading.Thread):
    def __init__(self, model, lock):
        self.model, self.lock = model, lock
    def run(self):
        with self.lock:
            {call}

def main():
    lock = threading.Lock()
    Saver(model, {handed}).start()
    with lock:
        step()
"""
HELD, ASKED = 9, 14
SLOTS = """\
import multiprocessing as mp
import threading

class Reader:
    def __init__(self):
        self.slots = {made}
    def read(self, i):
        self.slots.acquire()
        x = decode(i)
        {release}
        return x
"""
TAKES = 8
METRICS = """\
def worker(metrics):
    metrics.put(row)

def drain(metrics):
    while True:
        use(metrics.get())
"""


def said(folder: Path, text: str, *lines: int, held: int = 0, inner: tuple[Frame, ...] = ()) -> Awaited:
    """Return what is awaited at a line, while another thread is at one as well."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    frames = tuple(Frame(str(path), line, "f") for line in lines)
    others = (("saver", (Frame(str(path), held, "run"),)),) if held else ()
    found = of_threads(OF_THREADS, Stack((*inner, *frames), others=others))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("dist.barrier()", "holds while it waits for the other ranks in dist.barrier at train.py:9"),
        ("write(self.model)", "lock, which its thread saver took at train.py:8 and holds at train.py:9"),
    ],
)
def test_a_lock_that_was_handed_to_a_thread_is_known_by_its_other_name(tmp_path: Path, call: str, told: str) -> None:
    """A collective below it waits for all ranks, of which this one waits for the lock."""
    found = said(tmp_path, SAVER.format(call=call, handed="lock"), ASKED, held=HELD)

    assert told in found.what
    assert ("before dist.barrier" in found.mend) == ("barrier" in call)


def test_another_lock_is_not_taken_for_it(tmp_path: Path) -> None:
    """Nobody is known to hold it then."""
    text = SAVER.format(call="dist.barrier()", handed="threading.Lock()")

    assert said(tmp_path, text, ASKED, held=HELD) is OF_THREADS


@pytest.mark.parametrize(
    ("made", "release", "told"),
    [
        ("mp.Semaphore(3)", "self.slots.release()", "whose places are taken: self.slots.acquire() at line 8 is given"),
        ("mp.get_context('spawn').Semaphore(3)", "self.slots.release()", "a Semaphore of processes"),
        ("mp.Lock()", "self.slots.release()", "a Lock of processes, which another one has taken"),
        ("mp.Semaphore(3)", "done(x)", "a release() of self.slots, a Semaphore of processes"),
    ],
)
def test_a_semaphore_of_processes(tmp_path: Path, made: str, release: str, told: str) -> None:
    """Its places are given back by who takes them, or by another process."""
    assert told in said(tmp_path, SLOTS.format(made=made, release=release), TAKES).what


def test_a_semaphore_of_threads_is_none_of_processes(tmp_path: Path) -> None:
    """Neither is one of which it is not known what made it."""
    for made in ("threading.Semaphore(3)", "slots"):
        (tmp_path / made[:5]).mkdir()
        found = said(tmp_path / made[:5], SLOTS.format(made=made, release="self.slots.release()"), TAKES)
        assert "of processes" not in found.what


def test_a_queue_of_processes_that_is_full(tmp_path: Path) -> None:
    """Where its items are taken is told: that has ended, or stands."""
    found = said(tmp_path, METRICS, 2, inner=(Frame(queues.__file__, 90, "Queue.put"),))

    assert found.what.startswith("room in metrics, a queue of processes, which is full")
    assert "which takes it out at train.py:6" in found.mend
    assert said(tmp_path, METRICS, 2, inner=(Frame(threading.__file__, 90, "Queue.put"),)) is OF_THREADS
