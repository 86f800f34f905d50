"""Ranks that all stand where none of them communicates: whether anybody but they could wake one."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from helpers import Script

from ddpdoctor import watch
from ddpdoctor.host.process.waits.awaited import awaited
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.host.stack import Frame
from ddpdoctor.watch.events import Doing, Position, Site
from ddpdoctor.watch.monitor.seen import threads
from ddpdoctor.watch.monitor.stands import among_themselves
from ddpdoctor.watch.rank.around.answers import other_stacks

PATIENCE = 30.0
BARRIER = "import threading\nthreading.Barrier(2).wait({})"
STORE = """
import socket
store = socket.create_server(("127.0.0.1", 0))
socket.create_connection(store.getsockname()).recv(1)
"""
SERVER = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(1)
"""


AT_BARRIER = tuple(Frame(threading.__file__, 9, each) for each in ("wait", "wait_for", "_wait", "wait"))
AT_EVENT = tuple(Frame(threading.__file__, 9, each) for each in ("wait", "wait"))
IN_QUEUE = (AT_EVENT[0], Frame(queue.__file__, 9, "get"))
LIBRARY = (Frame("/lib/python3/site-packages/pyarrow/fs.py", 9, "read"),)
LOCKS = """\
import threading
from library import Lock
own = threading.Lock()
other = Lock()
with own:
    pass
with other:
    pass
"""
OWN, OTHER = 5, 7


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list of processes, which are ended."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        each.kill()
        each.wait()


def standing(started: list[subprocess.Popen[bytes]], code: str, *args: str) -> Position:
    """Start a process, and return it as a rank as soon as it waits."""
    process = subprocess.Popen((sys.executable, "-S", "-c", code, *args))
    started.append(process)
    ends = time.monotonic() + PATIENCE
    while (found := awaited(process.pid)) is None or not (found.thread or found.port):
        assert time.monotonic() < ends
        time.sleep(0.01)
    return Position(rank=len(started) - 1, pid=process.pid, doing=Doing.STANDING, seconds=40, awaited=found)


def certain(
    monkeypatch: pytest.MonkeyPatch, *ranks: Position, alone: bool = True, inner: tuple[Frame, ...] = AT_BARRIER
) -> bool:
    """Ask of ranks whose other threads are known."""
    told = {each.pid for each in ranks} if alone else set()
    monkeypatch.setattr(among_themselves, "those_alone", lambda _: told)
    store = Frame(str(Path(__file__).with_name("store.py")), 1, "main")
    monkeypatch.setattr(among_themselves, "_calls", lambda frame, _: [frame] if frame is store else [])
    frames = {each.pid: (store,) if each.awaited and each.awaited.port else inner for each in ranks}
    return among_themselves.wait_for_each_other(ranks, frames, [])


def test_nobody_comes_to_a_barrier_of_threads(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out ends such a wait, and another thread can come."""
    ranks = [standing(started, BARRIER.format("")) for _ in range(2)]
    assert certain(monkeypatch, *ranks)
    assert not certain(monkeypatch, *ranks, alone=False)
    assert not certain(monkeypatch, *ranks, standing(started, BARRIER.format(600)))


def test_what_a_thread_of_a_library_could_wake_is_not_told(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    """It is no Python: an event, a lock of somebody else's class, and what waits within native code."""
    rank = standing(started, BARRIER.format(""))
    path = script(LOCKS)
    for inner, told in (
        (AT_BARRIER, True),
        (IN_QUEUE, True),
        (AT_EVENT, False),
        (LIBRARY, False),
        ((Frame(path, OWN, "<module>"),), True),
        ((Frame(path, OTHER, "<module>"),), False),
        ((), False),
    ):
        assert certain(monkeypatch, rank, inner=inner) is told, inner


def test_a_store_of_the_ranks_and_a_server_of_others(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All wait at one that a rank has; a server of anybody else can answer."""
    first = standing(started, STORE)
    assert first.awaited is not None
    port = first.awaited.port
    assert certain(monkeypatch, first, standing(started, SERVER, str(port)))
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(psutil.Process, "parent", lambda _: None)  # this process has it
        assert not certain(monkeypatch, first, standing(started, SERVER, str(other.getsockname()[1])))


def test_a_process_that_a_rank_has_started_could_do_anything(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the rank's store, or writes what the rank reads."""
    child = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', 'input()'])\n"
    rank = standing(started, child + BARRIER.format(""))
    assert not certain(monkeypatch, rank)
    for each in psutil.Process(rank.pid).children():
        each.kill()


def test_threads_that_could_run_the_scripts_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the script does; one of the watch, or of a library that only serves, does not."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    try:
        told = other_stacks(-1)
        assert "threading.py" in told
    finally:
        done.set()
        thread.join()
    watch = f'  File "{among_themselves.__file__}", line 3 in serve\n'
    serves = '  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 81 in _worker\n'
    script = '  File "/work/train.py", line 9 in feed\n'
    answers = {1: "", 2: f"{watch}\n{serves}", 3: f"{watch}\n{script}", 4: f"{script}{serves}", 5: told}
    monkeypatch.setattr(threads, "ask", lambda *_: answers)
    assert threads.those_alone([tmp_path / str(os.getpid())]) == {1, 2}


def test_a_thread_of_the_scripts_is_its_own_though_the_watch_is_at_work_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a collective, around which the watch's hook is; it is named, with its line: its process has two."""
    hook = Frame(str(Path(watch.__file__).parent / "rank/hooks/communications.py"), 85, "communicate")
    started = (Frame(threading.__file__, 982, "run"), Frame(threading.__file__, 1002, "_bootstrap"))
    stacks = {
        "Thread-1 (save)": (hook, Frame("/home/u/train.py", 28, "save"), *started),
        "watch": (Frame("/usr/lib/python3.11/json/encoder.py", 9, "encode"), hook, *started),
    }
    text = "\n\n".join(
        f"Thread {name}\n" + "\n".join(f'  File "{each.file}", line {each.line} in {each.function}' for each in frames)
        for name, frames in stacks.items()
    )
    monkeypatch.setattr(threads, "ask", lambda *_: {7: text})

    saves = ("Thread-1 (save)", Site("/home/u/train.py", 28, "save"))
    assert threads.in_users_code([Path("/run/7")]) == {7: (saves,)}
    assert threads.those_alone([Path("/run/7")]) == set()


@pytest.mark.parametrize(("call", "is_store"), [("store.get('go')", True), ("client.recv(100)", False)])
def test_a_server_of_a_ranks_own_is_no_store(tmp_path: Path, call: str, *, is_store: bool) -> None:
    """Where the rank itself listens at the port, the line tells which of both it is."""
    (script := tmp_path / "train.py").write_text(f"{call}\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        waits = Awaited(f"an answer of 127.0.0.1:{port}", port=port)
        site = Site(str(script), 1, "<module>")
        rank = Position(rank=0, pid=os.getpid(), doing=Doing.STANDING, seconds=30, site=site, awaited=waits)
        (told,) = among_themselves.by_their_stores([rank])
    assert told.awaited is not None
    assert told.awaited.what.startswith("an answer of the ranks' store") == is_store
