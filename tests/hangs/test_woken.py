"""What wakes a rank that waits in ``threading``, for a future, a pool, a build or its own work."""

from __future__ import annotations

import concurrent.futures
import multiprocessing.pool
import multiprocessing.queues
import multiprocessing.synchronize
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.host.process.waits.wait import OF_PROCESSES, Awaited
from ddpdoctor.host.stack import Frame
from ddpdoctor.source.works import waited_work
from ddpdoctor.stuck.looks import builds
from ddpdoctor.stuck.looks.communication import communication
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.stuck.waits import kept, pools
from ddpdoctor.watch.monitor.seen.operation import inner_function

IMPORTER = Frame("<frozen importlib._bootstrap>", 237, "_ModuleLock.acquire")
OF_THREADS = Awaited("a lock, a queue or a thread of its own", thread=True)
TORCH = "/venv/lib/python3.11/site-packages/torch"
FUTURES = str(Path(concurrent.futures.__file__).with_name("_base.py"))
SOURCE = """
def wait(self):
    self.done.wait()
    with slots:
        slots.acquire()
    gate.wait()
    pool.submit(job).result()
    libc.sem_wait(sem)
    with self.lock_for(key):
        go(self)
    self.jobs.get()
def begin(self):
    self.jobs = queue.SimpleQueue()
"""
DONE, AGAIN, GATE, RESULT, NATIVE, ENTERS, CALL, GET = 3, 5, 6, 7, 8, 9, 10, 11  # lines
INNER = Frame(threading.__file__, 355, "Condition.wait")


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Return a script that waits for others of its threads."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def said(
    *frames: Frame, others: tuple[tuple[str, tuple[Frame, ...]], ...] = (), found: Awaited = OF_THREADS
) -> Awaited:
    """Return what a rank with such a stack waits for."""
    told = kept.of_threads(found, Stack(frames, ((),) * len(frames), others), 77)
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("method", "line", "words"),
    [
        ("Event.wait", DONE, "self.done, an Event, to be set"),
        (
            "BoundedSemaphore.acquire",
            AGAIN,
            "a place of slots, a Semaphore, of which it has taken one itself at line 4",
        ),
        ("Semaphore.acquire", GATE, "a place of gate, a Semaphore, all of whose places are taken"),
        ("Barrier.wait", GATE, "gate, a Barrier, to which not all have come that it was made for"),
    ],
)
def test_what_another_thread_has_to_do(script: str, method: str, line: int, words: str) -> None:
    """By the class of ``threading``, and the name that the line gives its object."""
    assert said(INNER, Frame(threading.__file__, 600, method), Frame(script, line, "wait")).what == words


def test_a_condition_is_told_by_its_own_frame(script: str) -> None:
    """All of the others wait in one; where the user has called it, it is that."""
    assert said(INNER, Frame(script, DONE, "wait")).what == "a notify() of self.done, a Condition"


def test_a_barrier_of_processes(script: str) -> None:
    """The kernel knows that the lock is shared; the stack, what it is."""
    inner = (
        Frame(multiprocessing.synchronize.__file__, 261, "Condition.wait"),
        Frame(threading.__file__, 9, "Barrier.wait"),
    )
    assert said(*inner, Frame(script, GATE, "wait"), found=OF_PROCESSES).what.startswith("gate, a Barrier")
    assert said(inner[0], Frame(script, GATE, "wait"), found=OF_PROCESSES).what.startswith("a notify() of gate")
    assert said(Frame(script, CALL, "wait"), found=OF_PROCESSES) is OF_PROCESSES


def test_a_pool_of_threads_that_waits_for_itself(script: str) -> None:
    """All threads of it that are at work wait for a result; one that does something else can still end."""
    inner = (INNER, Frame(FUTURES, 451, "Future.result"), Frame(script, CALL, "wait"))
    waits = ("ThreadPoolExecutor-0_0", (Frame(script, RESULT, "wait"),))
    works = ("ThreadPoolExecutor-0_1", (Frame(script, CALL, "wait"),))
    assert "all threads of the pool" in said(*inner, others=(waits,)).what
    assert said(*inner, others=(waits, works)).what == "the result of future, a Future"


@pytest.mark.parametrize(("made", "waits"), [("ThreadPoolExecutor(4)", True), ("load_dataset()", False)])
def test_who_maps_over_a_pool_waits_for_it(tmp_path: Path, made: str, waits: bool) -> None:  # noqa: FBT001
    """A method of that name of anything else computes."""
    path = tmp_path / "load.py"
    path.write_text(f"pool = {made}\ndef clip(n):\n    return list(pool.map(frame, range(n)))\nfuture.result()\n")
    inner = (INNER, Frame(FUTURES, 451, "Future.result"), Frame(str(path), 4, "wait"))
    told = said(*inner, others=(("ThreadPoolExecutor-0_0", (Frame(str(path), 3, "clip"),)),)).what

    assert ("all threads of the pool" in told) == waits


def test_a_wait_within_native_code(script: str) -> None:
    """The line calls one thing, by its name; a ``with`` takes a lock, of whatever its object comes from."""
    told = said(Frame(script, NATIVE, "wait"))
    assert (told.what, told.command) == (
        "something inside of libc.sem_wait, which is no Python", "py-spy dump --native --pid 77"
    )  # fmt: skip
    assert said(Frame(script, GET, "wait")).what.startswith("an item of self.jobs, and no other thread of it")
    assert said(Frame(script, ENTERS, "wait")) is OF_THREADS
    assert said(Frame(script, CALL, "wait")) is OF_THREADS


WORKS = """
import torch.distributed as dist
from torch.distributed import batch_isend_irecv as exchange
class Stage:
    def post(self):
        self.work = dist.irecv(self.buffer, 0)
    def take(self):
        self.work.wait()
def average(params):
    handles = []
    for each in params:
        handles.append(dist.all_reduce(each, async_op=True))
    for handle in handles:
        handle.wait()
def ring(x, y):
    works = [dist.isend(x, 1), dist.irecv(y, 1)]
    for work in works:
        work.wait()
    for work in exchange(ops):
        work.wait()
def other(process, dist_work):
    process.wait()
    dist_work.wait()
    dist.all_reduce(dist_work, async_op=flag).wait()
    reduced = dist.all_reduce(process)
    reduced.wait()
def direct(x):
    dist.broadcast(x, 0, async_op=True).wait()
def sides(x, rank):
    if rank == 0:
        work = dist.isend(x, 1)
        work.wait()
    else:
        work = dist.irecv(x, 0)
        work.wait()
    last = None
    for each in x:
        if last is not None:
            last.wait()
        last = dist.isend(each, 1)
"""
BEGUN = {
    8: "recv",
    14: "all_reduce",
    18: "batch_isend_irecv",
    20: "batch_isend_irecv",
    28: "broadcast",
    32: "send",
    35: "recv",
    39: "send",
}


def test_the_work_that_a_line_waits_for(tmp_path: Path) -> None:
    """It was begun by a call of torch's that returns one; of anything else with a ``wait()`` nothing is said."""
    path = tmp_path / "train.py"
    path.write_text(WORKS)
    lines = range(1, WORKS.count("\n") + 1)
    assert {line: name for line in lines if (name := waited_work(str(path), line))} == BEGUN


def test_a_wait_for_work_is_a_communication(tmp_path: Path) -> None:
    """The stack shows the script's line alone; py-spy names torch's own methods with their class."""
    path = tmp_path / "train.py"
    path.write_text(WORKS)
    assert communication((Frame(str(path), 14, "average"),)) == "Work.wait of all_reduce"
    assert communication((Frame(str(path), 22, "other"),)) == ""
    inner = Frame(f"{TORCH}/nn/parallel/distributed.py", 1650, "DistributedDataParallel.forward")
    assert communication((inner, Frame(str(path), 22, "other"))) == "forward of DistributedDataParallel"


POOL, QUEUES = multiprocessing.pool.__file__, multiprocessing.queues.__file__
AWAITS = (INNER, Frame(POOL, 768, "MapResult.wait"), Frame("/work/train.py", 7, "main"))
IDLE = Stack((Frame(QUEUES, 365, "SimpleQueue.get"), Frame(POOL, 114, "worker"), Frame("/work/train.py", 7, "main")))
BUSY = Stack((Frame("/work/train.py", 3, "tokenize"), Frame(POOL, 125, "worker"), Frame("/work/train.py", 7, "main")))
OTHER = Stack((Frame("/work/train.py", 30, "serve"),))


@pytest.mark.parametrize(
    ("children", "lost"), [([IDLE, IDLE, OTHER], True), ([IDLE, BUSY], False), ([OTHER], False), ([], False)]
)
def test_a_pool_that_lost_a_task(monkeypatch: pytest.MonkeyPatch, children: list[Stack], *, lost: bool) -> None:
    """All of its processes wait for a task, while the rank waits for a result; other processes are no part of it."""
    monkeypatch.setattr(pools, "started_by", lambda pid: [pid, *range(1, len(children) + 1)])
    monkeypatch.setattr(pools, "stacks", lambda pids: SimpleNamespace(read=dict(zip(pids, children, strict=True))))
    told = pools.of_pool(99, Stack(AWAITS))
    assert (told is not None) is lost
    makes = Stack(AWAITS, others=(("Thread-1 (_handle_tasks)", (Frame("/work/train.py", 5, "items"),)),))
    assert pools.of_pool(99, makes) is None
    assert pools.of_pool(99, Stack(AWAITS[2:])) is None


def test_the_lock_of_a_build_that_nobody_holds(tmp_path: Path) -> None:
    """Its folder is told by torch's own function; while a process has the lock open, that builds."""
    frames: list[dict[str, Any]] = [
        {"filename": f"{TORCH}/utils/file_baton.py", "name": "FileBaton.wait", "locals": []},
        {
            "filename": f"{TORCH}/utils/cpp_extension.py", "name": "_jit_compile",
            "locals": [{"name": "name", "repr": '"x"'}, {"name": "build_directory", "repr": f'"{tmp_path}"'}],
        },
    ]  # fmt: skip
    assert builds.built_in(frames) == str(tmp_path)
    assert builds.built_in(frames[1:]) == ""
    assert builds.waits_for_build((Frame(f"{TORCH}/utils/file_baton.py", 49, "FileBaton.wait"),))
    assert builds.of_left_lock(str(tmp_path)) is None
    with (tmp_path / "lock").open("w"):
        assert builds.of_left_lock(str(tmp_path)) is None


def test_an_import_that_waits_for_itself(tmp_path: Path) -> None:
    """A module starts a thread and waits for it, and the thread imports the module."""
    path = tmp_path / "plug.py"
    path.write_text("def work():\n    from lib.plug import later\nthread.start()\nthread.join()\n")
    works = Frame(str(path), 2, "work")
    main = (Frame(str(path), 4, "<module>"), Frame("/home/me/train.py", 3, "<module>"))

    told = said(IMPORTER, works, others=(("MainThread", main),))
    assert told.what == "the import of lib.plug to end, in which its thread MainThread is at plug.py:4"
    assert said(IMPORTER, works).what == "the import of lib.plug to end, which another thread has begun"
    assert said(Frame("<frozen importlib._bootstrap>", 1, "_find_and_load"), works).what == OF_THREADS.what
    assert inner_function((IMPORTER, works)) == "importlib._bootstrap._ModuleLock.acquire"
