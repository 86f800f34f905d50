"""What a process that rests waits for, read from the kernel: real processes, each in one call."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ddpdoctor.host.process.system_calls import sleeps
from ddpdoctor.host.process.waits.awaited import awaited, waits_for_a_sleeper
from ddpdoctor.host.process.waits.files import locked_files
from ddpdoctor.host.stack import Frame
from ddpdoctor.stuck import positions
from ddpdoctor.stuck.looks.lines import sites_of
from ddpdoctor.stuck.looks.look import Seen
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.stuck.waits.kept import of_fork
from ddpdoctor.watch.events import Doing

if TYPE_CHECKING:
    from ddpdoctor.host.process.waits.wait import Awaited

PATIENCE = 30.0
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists() or platform.machine() not in {"x86_64", "aarch64"},
    reason="this kernel does not tell the system calls of processes",
)
BEGIN = "import fcntl, os, select, signal, socket, subprocess, sys, threading, time\n"


class Waiting:
    """Starts processes that wait, and ends them."""

    def __init__(self) -> None:
        """Begin with none."""
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, *args: str) -> int:
        """Start a process that comes to wait for something; return its number."""
        process = subprocess.Popen(
            (sys.executable, "-S", "-c", BEGIN + code, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.started.append(process)
        return process.pid

    def seen(self, code: str, *args: str, store: int = 0, words: str = "") -> Awaited:
        """Return what is told of such a process as soon as it waits for that."""
        return until(self.start(code, *args), words, store)


def until(pid: int, words: str, store: int = 0) -> Awaited:
    """Look until a process waits for what these words say."""
    last, ends = None, time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        last = awaited(pid, store=store)
        if last is not None and words in last.what:
            return last
        time.sleep(0.01)
    raise AssertionError(f"{words!r} is not what was told: {last}")


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Yield a starter of processes; none is left."""
    made = Waiting()
    yield made
    for each in made.started:
        each.kill()
        each.communicate()


def test_a_question(waiting: Waiting) -> None:
    """A rank that asks on its standard input, which no one types into."""
    assert "ask no question" in waiting.seen("input()", words="to type on its standard input").mend


def test_a_lock_and_who_holds_it(waiting: Waiting, tmp_path: Path) -> None:
    """Of flock and of fcntl, by the process that has it."""
    for name, lock in (("flock", "fcntl.flock(f, fcntl.LOCK_EX)"), ("lockf", "fcntl.lockf(f, fcntl.LOCK_EX)")):
        path = tmp_path / name
        holder = waiting.start(
            f"f = open(sys.argv[1], 'w'); {lock}; f.write('x'); f.flush(); time.sleep(600)", str(path)
        )
        ends = time.monotonic() + PATIENCE
        while not (path.exists() and path.stat().st_size) and time.monotonic() < ends:
            time.sleep(0.01)
        found = waiting.seen(f"f = open(sys.argv[1], 'a'); {lock}", str(path), words=f"the lock of {path}")
        assert f"process {holder} " in found.what
        assert (found.process, found.command) == (holder, f"ps -fp {holder}")


def test_a_lock_that_a_child_inherited(waiting: Waiting, tmp_path: Path) -> None:
    """Who took it has closed the file: a worker that was forked meanwhile has it open, and with it the lock."""
    path = tmp_path / "x.lock"
    taker = waiting.start(
        "f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "if os.fork():\n    f.close(); open(sys.argv[1] + '.closed', 'w'); os.wait()\n"
        "else:\n    time.sleep(600)",
        str(path),
    )
    ends = time.monotonic() + PATIENCE
    while not path.with_suffix(".lock.closed").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    (child,) = psutil.Process(taker).children()
    code = "f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX)"
    found = waiting.seen(code, str(path), words=f"the lock of {path}")
    child.kill()

    assert f"which process {taker} took and which its child {child.pid} " in found.what
    assert "fcntl.LOCK_UN" in found.mend


def test_a_child_and_its_command(waiting: Waiting) -> None:
    """What a rank has started, by wait() and by the end of its output."""
    found = waiting.seen("subprocess.Popen(['sleep', '600']).wait()", words="the end of process")
    os.kill(found.process, 9)
    assert "(sleep 600), which it has started" in found.what
    piped = "subprocess.run(['sleep', '600'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)"
    found = waiting.seen(piped, words="data from a pipe that process")
    os.kill(found.process, 9)
    assert "(sleep 600) writes into" in found.what


def test_a_program_that_was_left_in_the_background_keeps_a_pipe(waiting: Waiting) -> None:
    """Its output is read to the end, which comes with its own; the shell that has started it is gone."""
    code = "subprocess.run('sleep 600 & echo started', shell=True, capture_output=True)"
    found = waiting.seen(code, words="the end of a pipe that process")
    os.kill(found.process, 9)

    assert "(sleep 600) writes into: the program that has started it in the background is gone" in found.what
    assert "> log 2>&1 &" in found.mend


def test_an_item_of_a_queue_between_processes(waiting: Waiting) -> None:
    """By the stack: the kernel sees a pipe. A data loader takes out of such a queue by itself."""
    pid = waiting.start("r, w = os.pipe(); child = subprocess.Popen(['sleep', '600'], pass_fds=[w]); os.read(r, 1)")
    found = until(pid, "data from a pipe that process")
    get, own = Frame("/usr/lib/python3.11/multiprocessing/queues.py", 103, "Queue.get"), Frame("t.py", 3, "work")
    loader = Frame("/x/torch/utils/data/dataloader.py", 1284, "_try_get_data")
    told = awaited(pid, (get, own))
    assert told is not None
    assert told.what.startswith("an item of a queue, from a pipe that process")
    assert (of_loader := awaited(pid, (get, loader, own))) is not None
    assert of_loader.what == f"a batch from the workers of its data loader (process {found.process})"
    os.kill(found.process, 9)


def test_a_batch_of_a_loaders_workers(waiting: Waiting) -> None:
    """By the stack as well: what writes into the pipe is what the rank has started for its loader."""
    code = "r, w = os.pipe(); [subprocess.Popen(['sleep', '600'], pass_fds=[w]) for _ in range(2)]; os.read(r, 1)"
    pid = waiting.start(code)
    until(pid, "data from a pipe that processes")
    workers = [each.pid for each in psutil.Process(pid).children()]
    loader, own = Frame("/x/torch/utils/data/dataloader.py", 1284, "_try_get_data"), Frame("t.py", 3, "work")

    told = awaited(pid, (loader, own))

    assert told is not None
    assert told.what == f"a batch from the workers of its data loader (processes {workers[0]}, {workers[1]})"
    assert "DataLoader(..., timeout=60)" in told.mend
    assert awaited(pid, (own,)) != told
    for each in workers:
        os.kill(each, 9)


def test_what_a_child_waits_for_whose_output_is_read(waiting: Waiting, tmp_path: Path) -> None:
    """A command that opens a named pipe which nobody writes: the pipe is the cause, not the command."""
    fifo = tmp_path / "clip"
    os.mkfifo(fifo)
    code = "subprocess.run(['cat', sys.argv[1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE)"
    found = waiting.seen(code, str(fifo), words="writes into, and which waits for")
    os.kill(found.process, 9)
    assert str(fifo) in found.what.partition("and which")[2]


@pytest.mark.parametrize("piped", ["", ", stdout=subprocess.PIPE"])
@pytest.mark.parametrize(("seconds", "soon"), [(200, True), (600, False)])
def test_a_child_that_sleeps(waiting: Waiting, seconds: int, piped: str, *, soon: bool) -> None:
    """A script of the shell that sleeps and goes on, as a download tried again; one of hours is no such wait."""
    waiting.start(f"subprocess.run('sleep {seconds}; echo', shell=True{piped})")
    pid = waiting.started[-1].pid
    until(pid, "pipe" if piped else "the end of process")
    ends = time.monotonic() + PATIENCE
    while len(below := psutil.Process(pid).children(recursive=True)) < 2 and time.monotonic() < ends:
        time.sleep(0.01)
    time.sleep(0.3)
    try:
        assert waits_for_a_sleeper(pid) is soon
    finally:
        for each in below:
            each.kill()


def test_a_child_whose_output_nobody_reads(waiting: Waiting) -> None:
    """Its parent waits for its end, and has the only other end of the pipe."""
    writes = "import os; os.write(2, b'x' * 10 ** 7)"
    told = waiting.seen(
        "child = subprocess.Popen((sys.executable, '-S', '-c', sys.argv[1]), stderr=subprocess.PIPE); child.wait()",
        writes,
        words="to read its standard error, which is full",
    )
    assert told.what.startswith("the end of process")
    psutil.Process(told.process).kill()


def test_a_child_whose_queue_nobody_empties(waiting: Waiting) -> None:
    """It ends once the thread that writes what it has put is done, and its parent reads only after that."""
    told = waiting.seen(
        "from multiprocessing import get_context as context; own = context('fork'); queue = own.Queue(); "
        "child = own.Process(target=queue.put, args=(bytes(10 ** 7),)); child.start(); child.join()",
        words="to take out what it has put into a queue or pipe, which is full",
    )
    assert told.mend.startswith("take all of it out before join()")
    psutil.Process(told.process).kill()


def test_a_child_that_waits_in_its_turn(waiting: Waiting) -> None:
    """For somebody to type, or for the rank itself to write to it, or to close it."""
    asks = "subprocess.run((sys.executable, '-S', '-c', 'input()'))"
    told = waiting.seen(asks, words="and which waits for somebody to type on its standard input")
    psutil.Process(told.process).kill()
    reads = "p = subprocess.Popen((sys.executable, '-S', '-c', 'input()'), stdin=subprocess.PIPE); p.wait()"
    told = waiting.seen(reads, words="and which waits for this one to write to its standard input, or to close it")
    assert "communicate()" in told.mend
    psutil.Process(told.process).kill()


def test_a_peer_that_does_not_read(waiting: Waiting) -> None:
    """What is sent to it fits no more into the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sends = f"s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'x' * (1 << 26))"
        assert "time-out" in waiting.seen(sends, words=f"127.0.0.1:{port} to read what it sends").mend


def test_a_signal(waiting: Waiting) -> None:
    """A call of the C library that nothing else ends."""
    waiting.seen("signal.pause()", words="a signal")


def test_native_code_after_a_fork(waiting: Waiting) -> None:
    """A process that waits within native code for a thread, and has no other one, was left by its threads."""
    call = (
        "import ctypes; semaphore = ctypes.create_string_buffer(64); c = ctypes.CDLL(None); c.sem_init(semaphore, 0, 0)"
    )
    alone = waiting.start(f"{call}; c.sem_wait(semaphore)")
    beside = waiting.start(f"{call}; threading.Thread(target=time.sleep, args=(600,)).start(); c.sem_wait(semaphore)")
    for pid in (alone, beside):
        assert until(pid, "a lock, a queue or a thread").thread
    stack = Stack((Frame("/home/u/train.py", 3, "feature"),))
    found = of_fork(alone, awaited(alone), stack)
    assert found is not None
    assert "a thread of native code" in found.what
    other = of_fork(beside, awaited(beside), stack)
    assert other is not None
    assert "native" not in other.what
    of_python = of_fork(alone, awaited(alone), Stack((Frame(threading.__file__, 3, "wait"),)))
    assert of_python is not None
    assert "native" not in of_python.what


def test_a_named_pipe(waiting: Waiting, tmp_path: Path) -> None:
    """That nobody opens at the other end."""
    os.mkfifo(tmp_path / "pipe")
    waiting.seen("open(sys.argv[1])", str(tmp_path / "pipe"), words=f"the other end of the named pipe {tmp_path}/pipe")


def test_a_pipe_without_writers(waiting: Waiting) -> None:
    """Whoever was to write is gone, and the reader itself keeps it open."""
    waiting.seen("r, w = os.pipe(); os.read(r, 1)", words="a pipe that no other process writes into")


def test_an_output_that_nobody_reads(waiting: Waiting) -> None:
    """The process behind the pipe that a rank prints to does not read."""
    found = waiting.seen("\nwhile True: os.write(1, b'x' * 4096)", words="to read its standard output, which is full")
    assert found.process == os.getpid()


def test_a_queue_that_whoever_has_started_it_does_not_empty(waiting: Waiting) -> None:
    """Its parent waits for its end, as torch.multiprocessing.spawn does; other ranks could read as well."""
    pid = waiting.start(
        "from multiprocessing import get_context as context; own = context('fork'); queue = own.SimpleQueue()\n"
        "def fill():\n    while True: queue.put(bytes(10 ** 5))\n"
        "child = own.Process(target=fill); child.start(); print(child.pid, flush=True); child.join()"
    )
    output = waiting.started[-1].stdout
    assert output is not None
    child = int(output.readline())
    told = until(child, f"process {pid} (")
    assert "to take out what was put into a queue or pipe, which is full" in told.what
    assert told.process == pid
    psutil.Process(child).kill()


def test_connections(waiting: Waiting) -> None:
    """An answer of a server, of the ranks' store, of another store, a peer that does not connect."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it, but not to type checkers

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ask = f"s = socket.create_connection(('127.0.0.1', {port})); s.recv(1)"
        assert waiting.seen(ask, words=f"an answer of 127.0.0.1:{port}").command.startswith("ss -tnpi")
        timed = f"s = socket.create_connection(('127.0.0.1', {port}), 600); s.recv(1)"
        waiting.seen(timed, words=f"an answer of 127.0.0.1:{port}")
        waiting.seen(ask, words="the ranks' store", store=port)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ask = f"s = socket.create_connection(('127.0.0.1', {store.port})); s.recv(1)"
    waiting.seen(ask, words="an answer of a TCPStore of the script's own")
    waiting.seen("s = socket.create_server(('127.0.0.1', 0)); s.accept()", words="somebody to connect to its port")


def test_a_thread(waiting: Waiting) -> None:
    """Of a lock between threads the kernel knows no more."""
    assert waiting.seen("threading.Event().wait()", words="a lock, a queue or a thread").thread


def test_what_is_no_wait_is_not_told(waiting: Waiting) -> None:
    """A process that computes, or that is gone."""
    pid = waiting.start("os.write(1, b'x')\nwhile True: pass")
    stdout = waiting.started[-1].stdout
    assert stdout is not None
    assert stdout.read(1) == b"x"
    assert awaited(pid) is None
    assert awaited(1 << 22) is None


@pytest.mark.parametrize(
    ("sleep", "polls"),
    [
        ("time.sleep(600)", False),
        ("time.sleep(60)", True),
        ("select.select([], [], [], 60)", True),
        ("import ctypes; ctypes.CDLL(None).sleep(60)", True),
    ],
)
def test_a_sleep_and_its_end(waiting: Waiting, sleep: str, *, polls: bool) -> None:
    """One that ends within minutes is that of a rank that asks again then, and does not stand."""
    found = waiting.seen(sleep, words="the end of a sleep, ")
    seconds = int(found.what.split(", ")[1].split()[0])
    assert 540 < seconds <= 600 if not polls else 0 <= seconds <= 60
    assert sleeps(waiting.started[-1].pid) == polls


def test_a_lock_of_processes_is_no_lock_of_threads(waiting: Waiting) -> None:
    """Where Python's own synchronize.py waits, another process holds it."""
    pid = waiting.start("threading.Event().wait()")
    until(pid, "a lock, a queue or a thread")
    found = awaited(pid, (Frame("/usr/lib/python3.12/multiprocessing/synchronize.py", 95, "__enter__"),))
    assert found is not None
    assert found.what == "a lock or a queue that it shares with other processes"


def test_a_lock_that_the_process_has_itself(waiting: Waiting, tmp_path: Path) -> None:
    """By another open file: flock keeps the same process off, too."""
    code = "files = [open(sys.argv[1], 'a') for _ in range(2)]; [fcntl.flock(each, fcntl.LOCK_EX) for each in files]"
    found = waiting.seen(code, str(tmp_path / "x.lock"), words=f"the lock of {tmp_path / 'x.lock'}")

    assert "which this process has itself" in found.what


def test_the_files_that_a_process_has_locked(tmp_path: Path) -> None:
    """Those of others are none."""
    with (tmp_path / "x.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert str(tmp_path / "x.lock") in locked_files(os.getpid())
        assert str(tmp_path / "x.lock") not in locked_files(os.getppid())
    assert str(tmp_path / "x.lock") not in locked_files(os.getpid())


def test_a_process_that_has_not_begun(waiting: Waiting) -> None:
    """It is started by vfork, as subprocess does, and comes to its program late."""
    vfork = {"x86_64": "58", "aarch64": "220, 0x4011, 0, 0, 0, 0"}[platform.machine()]
    code = f"import ctypes; c = ctypes.CDLL(None); c.syscall({vfork}) == 0 and (c.poll(0, 0, 30_000), c._exit(0))"
    found = waiting.seen(code, words="to come to its program")

    assert found.process in {each.pid for each in psutil.Process(waiting.started[-1].pid).children()}
    os.kill(found.process, signal.SIGKILL)


ATTACH, DETACH, ANY = 16, 17, 0x40000000  # of ptrace(2), and __WALL of waitpid(2)


def test_a_debugger_from_outside(waiting: Waiting) -> None:
    """It holds the process, whatever call that is in; once it has let go, the call is told again."""
    pid = waiting.start("input()")
    until(pid, "somebody to type")
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    if ptrace(ATTACH, pid, 0, 0):
        pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, ANY)
    held = awaited(pid)
    ptrace(DETACH, pid, 0, 0)

    assert held is not None
    assert held.process == os.getpid()
    assert "a debugger that has stopped it" in held.what
    until(pid, "somebody to type")


def test_a_rank_in_a_debugger_stands_where_it_is_held_all_the_time() -> None:
    """One that a debugger looks at for a moment is as it was."""
    held = Seen(7, 9.0, looks=[Stack(), Stack()], state=psutil.STATUS_TRACING_STOP, length=5.0)

    assert positions._doing(held, "barrier", ("gloo",)) is Doing.STANDING
    assert positions._doing(replace(held, rested=0.1), "barrier", ("gloo",)) is Doing.WAITING
    assert positions._doing(replace(held, state=psutil.STATUS_SLEEPING), "barrier", ("gloo",)) is Doing.WAITING


def test_a_lock_is_told_of_ranks_alone_whose_frames_are_known(waiting: Waiting) -> None:
    """Gloo waits for the other ranks in one, too: where py-spy is missing, that is not told apart."""
    pid = waiting.start("threading.Event().wait()")
    until(pid, "a lock, a queue or a thread")
    rank: Any = SimpleNamespace(pid=pid, store=0)
    known, unknown = Stack(frames=(Frame("/work/train.py", 4, "train"),)), Stack()

    assert positions._awaited(rank, Seen(pid, 9.0, looks=[known, known])) is not None
    assert positions._awaited(rank, Seen(pid, 9.0, looks=[unknown, unknown])) is None


def test_a_debugger_is_told_by_its_frames() -> None:
    """Wherever it reads from."""
    found = awaited(
        os.getpid(), (Frame("/usr/lib/python3.11/cmd.py", 1, "cmdloop"), Frame("/usr/lib/python3.11/pdb.py", 2, "x"))
    )
    assert found is not None
    assert "prompt of a debugger" in found.what


def test_a_line_has_its_functions_own_name() -> None:
    """py-spy puts the class before it, which no source has."""
    frames = (Frame("/home/me/train.py", 3, "Trainer.fit"), Frame("/home/me/train.py", 9, "main.<locals>.<listcomp>"))
    assert [each.function for each in sites_of(frames)] == ["fit", "<listcomp>"]
