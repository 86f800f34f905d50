"""What keeps a rank that waits for a thread of its own, as stacks and sources tell it: without a process that hangs."""

from __future__ import annotations

import asyncio.base_events
import fcntl
import os
import queue
import selectors
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.host.stack import Frame
from ddpdoctor.source.held import Held, asked_lock, held_locks
from ddpdoctor.source.training.iterations import repeats_until
from ddpdoctor.stuck.looks.look import Seen
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.stuck.ranks.identity import Identity
from ddpdoctor.stuck.ranks.jobs import Job, Rank
from ddpdoctor.stuck.ranks.processes import Python
from ddpdoctor.stuck.ranks.unreaped import ended_ranks, gone_from_here
from ddpdoctor.stuck.waits import kept
from ddpdoctor.watch.events import Doing
from ddpdoctor.watch.monitor.seen.usage import Thread, Usage

OF_THREADS = Awaited("a lock, a queue or a thread of its own", thread=True)
SOURCE = """
def report(self):
    with self.stats:
        with self.model:
            pass
def train(self, jobs):
    with self.model, open("log") as log:
        for job in jobs:
            step(job)
            with self.stats:
                pass
    self.stats.acquire()
    while not done(self):
        with self.stats:
            def later():
                self.go()
            report(self)
    self.queue.get()
"""
STATS, MODEL, AGAIN, LATER, CALL, GET = 10, 4, 12, 16, 17, 18  # lines


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return a script that takes two locks in two orders."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def at(script: str, line: int, function: str = "train") -> Frame:
    """Return a frame of the script."""
    return Frame(script, line, function)


def test_what_a_line_takes_and_holds(script: str) -> None:
    """By its text; a file that is opened is no lock, and a function that is defined under a lock runs without."""
    assert [asked_lock(script, line) for line in (STATS, MODEL, AGAIN, 9)] == [
        "self.stats",
        "self.model",
        "self.stats",
        "",
    ]
    assert held_locks(script, STATS) == (Held("self.model", 7),)
    assert held_locks(script, MODEL) == (Held("self.stats", 3),)
    assert held_locks(script, LATER) == ()
    assert repeats_until(script, 14) == "while not done(self)"
    assert repeats_until(script, STATS) == ""


def said(*frames: Frame, others: tuple[tuple[str, tuple[Frame, ...]], ...] = (), ends: bool = False) -> str:
    """Return what a rank with such a stack waits for."""
    found = kept.of_threads(OF_THREADS, Stack(frames, ((),) * len(frames), others, ends))
    assert found is not None
    return found.what


def test_two_threads_that_wait_for_each_other(script: str) -> None:
    """Both locks are named, and the lines that took them."""
    thread = ("reporter", (at(script, MODEL, "report"),))
    assert said(at(script, STATS), others=(thread,)) == (
        "self.stats, which its thread reporter took at train.py:3 and holds, as that waits for self.model, which this "
        "one took at line 7"
    )


def test_a_thread_that_holds_the_lock_and_does_something_else(script: str) -> None:
    """Its line is told, of whatever function further in."""
    thread = ("trainer", (at(script, GET), at(script, 9)))
    assert said(at(script, MODEL, "report"), others=(thread,)) == (
        "self.model, which its thread trainer took at train.py:7 and holds at train.py:18"
    )


def test_a_lock_that_is_taken_twice(script: str) -> None:
    """By one thread: a function that takes it is called where it is held."""
    assert said(at(script, 3, "report"), at(script, CALL)) == ("self.stats, which it has taken itself at train.py:14")


def test_nothing_is_claimed_without_proof(script: str) -> None:
    """A lock that no thread is seen to hold; one of another file; a wait for something else."""
    other = ("reporter", (Frame("/work/other.py", MODEL, "report"),))
    assert said(at(script, MODEL, "report"), others=(other,)) == OF_THREADS.what
    assert said(at(script, 9), others=(("reporter", (at(script, MODEL, "report"),)),)) == OF_THREADS.what
    told = Awaited("an answer of 10.0.0.1:80")
    assert kept.of_threads(told, Stack((at(script, STATS),))) is told


def test_a_lock_that_was_not_given_back(script: str) -> None:
    """No thread is in the function that took it without a ``finally``; one that is can hold it rightly."""
    asks = Frame(script, 3, "report")
    assert said(asks) == (
        "self.stats, which no `with` of its threads holds: self.stats.acquire() at line 12 is given back by no finally"
    )
    assert said(asks, others=(("trainer", (at(script, GET),)),)) == OF_THREADS.what


def test_a_lock_of_another_object_is_another_lock(script: str) -> None:
    """It has the same name in the same file; where the objects are not known, the name decides."""
    asks = Frame(script, MODEL, "report", "0x7f01")
    holds, other = (("one", (Frame(script, GET, "train", "0x7f01"),)), ("two", (Frame(script, 9, "train", "0x7f02"),)))
    told = "self.model, which its thread one took at train.py:7 and holds at train.py:18"
    assert said(asks, others=(other, ("one", (Frame(script, 9, "train", "0x7f01"),)))).startswith(told[:45])
    assert said(asks, others=(other,)) == OF_THREADS.what
    assert "thread one" not in said(Frame(script, MODEL, "report"), others=(("two", (at(script, 9),)), holds))


def test_a_queue_that_is_full(script: str) -> None:
    """Whoever empties it is gone, or does something else."""
    inside = (Frame(threading.__file__, 355, "Condition.wait"), Frame(queue.__file__, 140, "Queue.put"))
    assert said(*inside, at(script, GET)).startswith("room in a queue, which is full, and no other thread of it")
    thread = ("reporter", (at(script, 9, "report"),))
    assert said(*inside, at(script, GET), others=(thread,)) == "room in a queue, which is full"


def test_a_queue_whose_items_nobody_marks(script: str) -> None:
    """Each get() is to be followed by a task_done(), or join() waits without end."""
    inside = (Frame(threading.__file__, 355, "Condition.wait"), Frame(queue.__file__, 90, "Queue.join"))
    thread = ("reporter", (at(script, 9, "report"),))
    assert said(*inside, at(script, GET), others=(thread,)).startswith("a task_done() for each item of a queue")


def test_a_queue_that_nobody_fills(script: str) -> None:
    """Where a thread is left that runs the script's code, that can."""
    inside = (Frame(threading.__file__, 355, "Condition.wait"), Frame(queue.__file__, 171, "Queue.get"))
    assert said(*inside, at(script, GET)).startswith("an item of a queue, and no other thread of it")
    thread = ("reporter", (at(script, 9, "report"),))
    assert said(*inside, at(script, GET), others=(thread,)) == OF_THREADS.what


def test_an_asyncio_loop_that_nobody_wakes(script: str) -> None:
    """Where the kernel knows no connection that it waits for."""
    inside = (
        Frame(selectors.__file__, 468, "EpollSelector.select"),
        Frame(asyncio.base_events.__file__, 1884, "BaseEventLoop._run_once"),
    )
    found = kept.of_threads(None, Stack((*inside, at(script, GET))))
    assert found is not None
    assert found.what.startswith("something that wakes its asyncio loop")
    told = Awaited("an answer of 10.0.0.1:80")
    assert kept.of_threads(told, Stack((*inside, at(script, GET)))) is told
    assert kept.of_threads(None, Stack((at(script, GET),))) is None


@pytest.mark.parametrize(("code", "doing"), [(0, Doing.ENDED), (3, Doing.FAILED), (-9, Doing.DIED)])
def test_a_rank_whose_end_nobody_has_asked_for(code: int, doing: Doing) -> None:
    """Its parent is to wait for another one first."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", f"import os; os.kill(os.getpid(), 9) if {code} < 0 else os._exit({code})"]
    )
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        told = Identity(0, 2, address="127.0.0.1:29500")
        job = Job((Rank(Python(os.getpid(), 1, "python train.py", {}, told, 0.0), told),), os.getpid(), ends_all=False)
        assert ended_ranks(job, ()) == {1: doing}
        assert ended_ranks(job, (1,)) == {}
    finally:
        child.wait()
    assert ended_ranks(job, ()) == {}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize(("meets", "gone"), [("127.0.0.1", (1,)), ("localhost", (1,)), ("n0", ()), ("", ())])
def test_a_rank_that_is_missing_can_only_have_been_here(
    meets: str, gone: tuple[int, ...], family: socket.AddressFamily
) -> None:
    """Where all meet at a loopback address, and one that is here is connected to it; torch's store listens on IPv6."""
    mapped = family is socket.AF_INET6
    address = "::ffff:127.0.0.1" if mapped else "127.0.0.1"
    with (
        socket.create_server(("::" if mapped else address, 0), family=family, dualstack_ipv6=mapped) as store,
        socket.socket(family) as client,
    ):
        client.connect((address, store.getsockname()[1]))
        port = store.getsockname()[1]
        environ = {"MASTER_ADDR": meets, "MASTER_PORT": str(port)}
        told = Identity(0, 2, address=f"{meets}:{port}")
        job = Job((Rank(Python(os.getpid(), 1, "python train.py", environ, told, 0.0), told),), 1, ends_all=False)
        assert gone_from_here(job) == gone
    assert gone_from_here(job) == ()


def test_a_script_that_has_ended(script: str) -> None:
    """Python waits for its threads."""
    assert said(at(script, GET), ends=True).startswith("this thread to end: the script has come to its end")


def test_a_lock_that_was_copied_by_a_fork(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that unless a thread of the copy holds it, or a process can."""
    stack = Stack((at(script, STATS),))
    for own, thread, told in (
        (True, (), True),
        (False, (), False),
        (True, (("reporter", (at(script, MODEL, "report"),)),), False),
    ):
        monkeypatch.setattr(kept, "waits_for_its_own", lambda _, own=own: own)
        found = kept.of_fork(7, OF_THREADS, Stack(stack.frames, others=thread))
        assert found is not None
        assert ("taken when this process was forked" in found.what) == told


def test_a_database_that_another_rank_has_locked(tmp_path: Path) -> None:
    """SQLite asks for it again and again; one that this rank has not open is no business of it."""
    path = tmp_path / "runs.db"
    code = (
        "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1]); db.execute('create table a (b)'); db.commit(); "
    )
    locks = code + "db.execute('begin exclusive'); print(1, flush=True); time.sleep(600)"
    process = subprocess.Popen((sys.executable, "-S", "-c", locks, str(path)), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert kept.of_database(os.getpid(), [process.pid]) is None
        with path.open("rb"):
            found = kept.of_database(os.getpid(), [1 << 22, process.pid])
    finally:
        process.kill()
        process.communicate()
    assert found is not None
    assert (found.process, f"the database {path}" in found.what) == (process.pid, True)


def test_a_lock_of_a_file_that_is_polled(script: str, tmp_path: Path) -> None:
    """A rank holds it that waits for the others; of two it is not known which."""
    polls = (Frame("/site-packages/filelock/_api.py", 300, "_poll_until_acquired"), at(script, 9))
    with (tmp_path / "x.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = kept.of_polled_lock(polls, [os.getpid(), 1 << 22])
        assert found is not None
        assert (found.process, f"{tmp_path}/x.lock" in found.what) == (os.getpid(), True)
        assert kept.of_polled_lock(polls[1:], [os.getpid()]) is None
        with (tmp_path / "y.lock").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert kept.of_polled_lock(polls, [os.getpid()]) is None
    assert kept.of_polled_lock(polls, [os.getpid()]) is None


def test_what_came_to_run_during_the_look_does_not_stand() -> None:
    """A rank, or a worker that it has started; what rests for longer than it was looked at stands."""
    assert Seen(7, 3.0, length=20.0).asks
    assert not Seen(7, 30.0, length=5.0).asks
    assert not Seen(7, None, length=5.0).asks
    seen = Seen(7, 3.0)
    for turns in (4, 5):
        seen.activity.take(Usage(7, 1.0 * turns, threads={7: Thread(1.0, 0.0, 9), 8: Thread(0.1, 0.0, turns)}))
    assert (seen.ran(8), seen.ran(7), seen.ran(9)) == (True, False, False)
    assert Seen(7, 3.0, state="sleeping").stood_for_less_than(20.0)
    assert not Seen(7, 30.0, state="sleeping").stood_for_less_than(20.0)


def test_what_the_loop_of_a_coroutine_waits_for_is_read_off_its_source(tmp_path: Path) -> None:
    """Its awaits, as far as they are few; of what is not seen to be run nothing is told."""
    path = tmp_path / "train.py"
    path.write_text(
        "import asyncio\nasync def prefetch(keys):\n    tasks = start(keys)\n    await queue.join()\n    return tasks\n"
        "asyncio.run(prefetch(keys))\nasyncio.run(main)\n",
        encoding="utf-8",
    )
    inner = (Frame(selectors.__file__, 468, "EpollSelector.select"), Frame(asyncio.base_events.__file__, 1898, ONCE))
    known, unknown = (kept.of_threads(None, Stack((*inner, Frame(str(path), line, "main")))) for line in (6, 7))

    assert known is not None
    assert known.what.endswith("prefetch awaits queue.join() at train.py:4")
    assert unknown is not None
    assert unknown.what.endswith("a task awaits what never comes")


ONCE = "BaseEventLoop._run_once"
