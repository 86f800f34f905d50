"""A rank's stack is taken without harm: nothing crashes, nothing is interrupted, and it is the main thread's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.host.stack import Frame, ask_main_thread, in_backward, read_stack
from ddpdoctor.watch.event_log import DUMP
from ddpdoctor.watch.events import Joined, Joining
from ddpdoctor.watch.monitor.seen import questions
from ddpdoctor.watch.monitor.seen.stacks import stacks
from ddpdoctor.watch.monitor.stands import looks
from ddpdoctor.watch.settings import STACK_SIGNAL
from ddpdoctor.watch.training import Training

SOME, MANY = 150, 100_000
ANSWERS = """
import ctypes, os, pathlib, random, sys, threading
from ddpdoctor.watch.rank.around.answers import Answers
answers = Answers(pathlib.Path(sys.argv[1]) / str(os.getpid()))
"""
BUSY = """
sys.setswitchinterval(1e-5)
def dive(depth):
    kept = [{} for _ in range(random.randrange(8))]
    def count():
        yield from range(3)
    return dive(depth - 1) if depth else sum(count()) + len(kept)
def work():
    while True:
        dive(random.randrange(1, 12))
def wait():
    while True:
        ctypes.CDLL(None).usleep(200)
for target in (work, work, work, wait, wait):
    threading.Thread(target=target, daemon=True).start()
print("up", flush=True)
work()
"""
INTERRUPTED = """
import ctypes, errno
def main(wait):
    print("up", flush=True)
    wait(None, 0, 60_000)
    print(errno.errorcode[ctypes.get_errno()], flush=True)
main(ctypes.{}(None, use_errno=True).poll)
"""
RENDEZVOUS = """
import sys, torch.distributed as dist
from ddpdoctor.watch.rank.recorder import Recorder
from ddpdoctor.watch.settings import Settings
Recorder(Settings(session=sys.argv[1])).become_rank(1)
print("up", flush=True)
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=1, world_size=2)
"""


@contextmanager
def running(text: str, folder: Path, *argv: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a program that prints a line when it has begun; yield it with the path of its files."""
    command = [sys.executable, "-c", text, str(folder), *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        try:
            yield process, folder / str(process.pid)
        finally:
            process.kill()


class TestBusy:
    """A process whose threads, of Python and of C, never rest."""

    @pytest.mark.parametrize("samples", [SOME, pytest.param(MANY, marks=[pytest.mark.zoo, pytest.mark.timeout(0)])])
    def test_it_survives_any_number_of_questions(self, tmp_path: Path, samples: int) -> None:
        """A thread of the process answers each, and always with the main thread's stack."""
        with running(ANSWERS + BUSY, tmp_path) as (process, base):
            for _ in range(samples):
                assert stacks([base])[process.pid][-1].function == "<module>"
            assert process.poll() is None

    @pytest.mark.parametrize("samples", [SOME, pytest.param(MANY, marks=[pytest.mark.zoo, pytest.mark.timeout(0)])])
    def test_it_survives_any_number_of_signals(self, tmp_path: Path, samples: int) -> None:
        """The signal finds the main thread at any instruction, alone or with others that wait to be handled."""
        with running(ANSWERS + BUSY, tmp_path) as (process, base):
            dump = base.with_suffix(DUMP)
            for number in range(samples):
                os.truncate(dump, 0)
                together = 1 + number % 3
                for _ in range(together):
                    ask_main_thread(process.pid, STACK_SIGNAL or 0)
                until = time.monotonic() + 5
                while (text := dump.read_text()).count("in <module>\n") < together and time.monotonic() < until:
                    assert process.poll() is None
                    time.sleep(0.0005)
                assert text.count("in <module>\n") == text.count("Stack") == together


@pytest.mark.parametrize("holds_the_gil", [False, True])
class TestInNativeCode:
    """A process that waits in C, with the GIL or without."""

    def test_its_stack_is_told(self, tmp_path: Path, *, holds_the_gil: bool) -> None:
        """Innermost frame first."""
        library = "PyDLL" if holds_the_gil else "CDLL"
        with running(ANSWERS + INTERRUPTED.format(library), tmp_path) as (process, base):
            frames = stacks([base])[process.pid]

        assert [frame.function for frame in frames] == ["main", "<module>"]

    def test_it_is_not_interrupted_where_that_is_not_wanted(self, tmp_path: Path, *, holds_the_gil: bool) -> None:
        """A process that is spared tells only what it can tell by itself; one that lets go of the GIL is always so."""
        library = "PyDLL" if holds_the_gil else "CDLL"
        with running(ANSWERS + INTERRUPTED.format(library), tmp_path) as (process, base):
            for _ in range(1 if holds_the_gil else 20):
                told = stacks([base], spared={process.pid} if holds_the_gil else set())
            assert set(told) == (set() if holds_the_gil else {process.pid})
            time.sleep(0.2)
            assert process.poll() is None  # it prints and ends when poll() is interrupted


def test_ranks_that_meet_feel_nothing(tmp_path: Path) -> None:
    """Torch's store tries again and again to connect, and prints no "Interrupted system call" with 20 frames."""
    with running(RENDEZVOUS, tmp_path, "1") as (process, base):
        time.sleep(0.5)
        sampled = [stacks([base])[process.pid] for _ in range(50)]
        process.kill()
        _, errors = process.communicate()

    assert {frames[0].function for frames in sampled} == {"_create_c10d_store"}
    assert "Interrupted" not in errors


def test_ranks_that_have_just_begun_to_meet_are_spared() -> None:
    """One that has met the others, or has tried for longer than a hang takes, is not."""
    training = Training()
    for pid, seconds in ((1, 1.0), (2, 1.0), (3, 60.0)):
        entered = time.time() - seconds
        training.add(Joining(pid=pid, time=entered, rank=pid, world_size=3, backend="gloo"))
    training.add(Joined(pid=2, time=time.time(), rank=2, world_size=3, backend="gloo"))

    assert looks.meeting(training, 30.0) == {1}


def test_a_session_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """Nor is a process that never made its files."""
    assert stacks([tmp_path / "12345"]) == {}
    assert questions.ask([tmp_path / "gone" / "12345"], DUMP) == {}


@given(st.text())
def test_junk_is_no_error(text: str) -> None:
    """Whatever stands in a dump."""
    assert isinstance(read_stack(text), tuple)


def test_a_dump_is_read() -> None:
    """File names have blanks; the frames stand innermost first."""
    dump = 'Stack (most recent call first):\n  File "/a b.py", line 12 in barrier\n  File "/t.py", line 3 in <module>\n'

    assert read_stack(dump) == (Frame("/a b.py", 12, "barrier"), Frame("/t.py", 3, "<module>"))
    assert read_stack("") == ()


def test_backward_is_known_by_a_frame_of_the_installed_torch() -> None:
    """What runs while the engine does, a hook of a tensor, has torch's call into the engine below it."""
    import torch

    seen: list[traceback.FrameSummary] = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_hook(lambda _: seen.extend(traceback.extract_stack()))  # type: ignore[no-untyped-call]
    for run in (torch.autograd.backward, lambda loss: torch.autograd.grad(loss, leaf)):
        run((leaf * 2).sum())

        assert any(in_backward(frame.filename, frame.name) for frame in seen)
        seen.clear()
