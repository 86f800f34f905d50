"""A rank that waits for a thread of its own which sleeps between two tries is none that stands."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.watch.events import Doing, Position, Site
from ddpdoctor.watch.monitor.stands import by_its_threads

OF_A_THREAD = Awaited("a lock, a queue or a thread of its own", thread=True)


def doing(path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> Doing:
    """Return what this process does, where another thread of it is at such a line, as the kernel sees them."""
    (file := path / f"train{len(line)}.py").write_text(f"{line}\n")
    told = {os.getpid(): (("writer", Site(str(file), 1, "run")),)}
    monkeypatch.setattr(by_its_threads, "in_users_code", lambda _: told)
    position = Position(rank=0, pid=os.getpid(), doing=Doing.STANDING, seconds=9, awaited=OF_A_THREAD)
    (found,) = by_its_threads.with_threads([position], [Path(str(os.getpid()))])
    assert found.threads == told[os.getpid()]
    return found.doing


def test_a_thread_that_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its line and by the kernel: an upload that is tried again after a while."""
    sleeper = threading.Thread(target=time.sleep, args=(2,), daemon=True)
    sleeper.start()
    time.sleep(0.2)

    assert doing(tmp_path, "time.sleep(30)", monkeypatch) is Doing.ASKING
    assert doing(tmp_path, "item = queue.get()", monkeypatch) is Doing.STANDING
    sleeper.join()


def test_a_thread_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sees no sleep that ends: the rank stands."""
    over = threading.Event()
    waiter = threading.Thread(target=over.wait, daemon=True)
    waiter.start()

    assert doing(tmp_path, "time.sleep(30)", monkeypatch) is Doing.STANDING
    over.set()
