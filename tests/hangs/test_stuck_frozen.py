"""Ranks that do not run for a reason of the kernel's: frozen, behind a stopped process, in a wait for a disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ddpdoctor.checks.collectives.hangs._lost import what_keeps
from ddpdoctor.findings import Report
from ddpdoctor.host.process.waits.frozen import frozen
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.host.stack import Frame
from ddpdoctor.stuck.looks.lines import sites_of
from ddpdoctor.stuck.looks.look import Seen
from ddpdoctor.stuck.looks.spy import Stack
from ddpdoctor.stuck.told.verdict import _said
from ddpdoctor.stuck.waits import disks
from ddpdoctor.stuck.waits.disks import A_DISK, of_disk
from ddpdoctor.stuck.waits.stopped import of_stopped
from ddpdoctor.watch.events import Doing, Position, Site, Stalled, Worker

READS = Frame(function="_recv", file="/usr/lib/python3.11/multiprocessing/connection.py", line=395)
V1 = ("6:freezer:/job", "freezer/job/freezer.state", "FROZEN\n", "THAWED\n", "echo THAWED | sudo tee")
V2 = ("0::/job", "job/cgroup.events", "populated 1\nfrozen 1\n", "populated 1\nfrozen 0\n", "echo 0 | sudo tee")


@pytest.mark.parametrize("version", [V1, V2])
def test_a_frozen_cgroup(tmp_path: Path, version: tuple[str, ...]) -> None:
    """As each version of cgroups tells it; the same one after it was thawed is none."""
    line, file, ice, water, command = version
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"3:cpu,cpuacct:/job\n{line}\n")
    state = tmp_path / file
    state.parent.mkdir(parents=True)
    state.write_text(ice)
    found = frozen(7, tmp_path, tmp_path)
    state.write_text(water)

    assert found is not None
    assert "its cgroup /job to be thawed" in found.what
    assert command in found.command
    assert frozen(7, tmp_path, tmp_path) is None
    assert frozen(8, tmp_path, tmp_path) is None


def test_a_stopped_child_is_named() -> None:
    """One that goes on is not."""
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        assert of_stopped(os.getpid(), Stack()) is None
        found = [_stopped(child) for child in started]
    finally:
        for child in started:
            child.kill()
            child.communicate()

    first, second = (child.pid for child in started)
    assert [each.command for each in found] == [f"kill -CONT {first}", f"kill -CONT {first} {second}"]
    assert "and 1 more, which a signal has stopped (SIGSTOP)" in found[1].what


def _stopped(child: subprocess.Popen[bytes]) -> Awaited:
    child.send_signal(signal.SIGSTOP)
    ends = time.monotonic() + 20
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < ends:
        time.sleep(0.01)
    found = of_stopped(os.getpid(), Stack())
    assert found is not None
    return found


def test_a_loader_whose_worker_is_stopped_is_told_so() -> None:
    """What it stands at is no cause: a signal has stopped it, and each that is stopped is to go on."""
    site, inner = Site("train.py", 19, "main"), Site("train.py", 13, "__getitem__")
    halted = Awaited("process 7 (python), which a signal has stopped (SIGSTOP)", "", "kill -CONT 7", 7)
    stands = Position(
        rank=1, pid=2, doing=Doing.STANDING, seconds=9, site=site, stack=(site,), awaited=halted,
        workers=(Worker(7, inner, None),),
    )  # fmt: skip

    said = what_keeps(stands, Stalled(pid=0, time=1.0, ranks=(stands,), world_size=1))
    assert said == f", and waits for {halted.what} at train.py:13"


def test_a_line_of_a_library_made_of_text_is_nobodys() -> None:
    """Managers of multiprocessing make their methods with exec; a script of ``python -c`` has no other name."""
    made, own = (
        Frame(function="__setitem__", file="<string>", line=2),
        Frame(function="work", file="/home/me/train.py", line=13),
    )

    assert [each.line for each in sites_of([READS, made, own])] == [13]
    assert [each.line for each in sites_of([READS, made])] == [2]


def test_a_long_wait_for_a_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is open whether the disk answers; a short one, or one between others, is work as any."""
    monkeypatch.setattr(disks, "awaited", lambda *_: None)
    frames = Stack((Frame(function="save", file="/home/me/train.py", line=3),))
    seen = Seen(7, 9.0, looks=[frames, frames], state=psutil.STATUS_DISK_SLEEP, length=5.0)

    assert of_disk(0, seen) is A_DISK
    assert of_disk(0, replace(seen, rested=0.1)) is None
    assert of_disk(0, replace(seen, state=psutil.STATUS_RUNNING)) is None


@pytest.mark.parametrize(
    ("awaits", "said"),
    [(A_DISK, "Undecided: rank 0 waits for a disk at train.py:3"), (None, "does not hang")],
)
def test_the_verdict_on_a_disk(awaits: Awaited | None, said: str) -> None:
    """A rank in a wait for a disk is not said to be at work."""
    site = Site("/home/me/train.py", 3, "save")
    saves = Position(rank=0, pid=7, doing=Doing.WORKING, seconds=9.0, site=site, awaited=awaits)
    waits = Position(rank=1, pid=8, doing=Doing.WAITING, seconds=9.0, site=site, operation="barrier")
    event = Stalled(pid=0, time=0.0, ranks=(saves, waits), world_size=2, outside=True)

    assert said in _said(event, Report((), (), 1.0))
