"""Threads that keep a rank from its end: only those that wait for ever, where nothing else of the process can run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.host.stack import read_stack
from ddpdoctor.watch.monitor.kept_at_end import _joins, _waiting

LIB = "/usr/lib/python3.11"
STARTED = f'  File "{LIB}/threading.py", line 982 in run\n  File "{LIB}/threading.py", line 1002 in _bootstrap\n'
GETS = f'  File "{LIB}/threading.py", line 320 in wait\n  File "{LIB}/queue.py", line 171 in get\n'
SLEEPS = '  File "/home/me/other.py", line 3 in tick\n'
SERVES = f'  File "{LIB}/concurrent/futures/thread.py", line 81 in _worker\n'
JOINS = (
    f'  File "{LIB}/threading.py", line 1119 in _wait_for_tstate_lock\n  File "{LIB}/threading.py", line 1119 in join\n'
)
AT_EXIT = f'  File "{LIB}/threading.py", line 1590 in _shutdown\n'


def frame(tmp_path: Path, code: str) -> str:
    """Return a frame at a line of the script."""
    path = tmp_path / "train.py"
    path.write_text(f"{code}\n")
    return f'  File "{path}", line 1 in work\n'


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("item = jobs.get()", True),
        ("done.wait()", True),
        ("while jobs.get() is not None:\n    pass", True),
        ("item = jobs.get(timeout=5)", False),
        ("item = jobs.get(True, 5)", False),
        ("done.wait(5)", False),
        ("send(jobs.get(), done.wait())", False),
    ],
)
def test_a_thread_waits_for_ever_where_its_line_sets_no_limit(tmp_path: Path, code: str, waits: bool) -> None:  # noqa: FBT001
    """A line of two waits does not say which of them it is."""
    assert bool(_waiting(GETS + frame(tmp_path, code) + STARTED)) is waits


@pytest.mark.parametrize(("beside", "waits"), [(SERVES, True), (SLEEPS, False), (GETS + STARTED, False)])
def test_nothing_is_said_beside_a_thread_that_can_wake_it(tmp_path: Path, beside: str, waits: bool) -> None:  # noqa: FBT001
    """One that only serves cannot; one that sleeps, or waits in a library, can."""
    text = f"{GETS}{frame(tmp_path, 'jobs.get()')}{STARTED}\n{beside}"

    assert bool(_waiting(text)) is waits


@pytest.mark.parametrize(
    ("inner", "code", "joins"),
    [
        (AT_EXIT, "", True),
        (JOINS, "thread.join()", True),
        (JOINS, "thread.join(10)", False),
        (GETS, "jobs.get()", False),
        ("", "dist.barrier()", False),
    ],
)
def test_the_main_thread_joins_another_one(tmp_path: Path, inner: str, code: str, joins: bool) -> None:  # noqa: FBT001
    """In the script, without a limit of time, or at the interpreter's end."""
    text = inner + (frame(tmp_path, code) if code else "")

    assert _joins(read_stack(text)) is joins


AT_ITS_END = """
import os, queue, sys, threading, time
from ddpdoctor.watch.rank.around.answers import other_stacks, thread_stack
jobs, main = queue.Queue(), threading.main_thread().ident
def upload():
    while jobs.get() is not None:
        pass
def answer():
    time.sleep(1)
    print(thread_stack(lambda: main) + "====" + other_stacks(main), flush=True)
    os._exit(0)
threading.Thread(target=upload).start()
threading.Thread(target=answer, daemon=True).start()
"""


def test_the_end_of_a_real_interpreter(tmp_path: Path) -> None:
    """Its main thread is in what joins threads, and the thread is told at the line that takes from the queue."""
    script = tmp_path / "train.py"
    script.write_text(AT_ITS_END)
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True).stdout
    main, _, others = told.partition("====")

    assert _joins(read_stack(main))
    assert [each.line for each in _waiting(others)] == [6]
