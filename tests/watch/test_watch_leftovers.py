"""The folders of sessions whose monitor was killed."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from ddpdoctor.watch import stale_sessions
from ddpdoctor.watch.stale_sessions import HELD, held, lock, sweep


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a session of two hours ago that nobody uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (path := tmp_path / "ddpdoctor-1").mkdir()
    for name in (HELD, "7.events", "7.pulse", "finding"):
        (path / name).touch()
    os.utime(path / HELD, (time.time() - 7200,) * 2)
    return path


def test_what_nobody_uses_is_removed(folder: Path) -> None:
    """Monitor and ranks are gone."""
    sweep()

    assert not folder.exists()


@pytest.mark.parametrize("name", [HELD, "7.events"])
def test_what_somebody_uses_stays(folder: Path, name: str) -> None:
    """A monitor, or a rank that goes on without one, holds its lock until it ends."""
    with (folder / name).open("r+b") as file:
        lock(file.fileno())
        sweep()
        assert folder.exists()
    sweep()

    assert not folder.exists()


def test_a_fresh_one_stays(folder: Path) -> None:
    """Its monitor is on its way to the lock."""
    os.utime(folder / HELD)
    sweep()

    assert folder.exists()


@pytest.mark.parametrize("name", ["model.pt", "0.copy", "output"])
def test_one_that_holds_something_else_stays(folder: Path, name: str) -> None:
    """A copy of what a rehearsal has changed is the user's."""
    (folder / name).touch()
    sweep()

    assert folder.exists()


def test_without_a_monitors_file_it_stays(folder: Path) -> None:
    """It is no session."""
    (folder / HELD).unlink()
    sweep()

    assert folder.exists()


def test_a_session_holds_its_lock_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the run and the monitor beside do; what was left before is gone when it begins."""
    monkeypatch.setattr(stale_sessions, "FRESH", -1.0)
    (session := folder.parent / "ddpdoctor-2").mkdir()
    with held(session):
        assert not folder.exists()
        sweep()
        assert session.exists()
    sweep()

    assert not session.exists()
