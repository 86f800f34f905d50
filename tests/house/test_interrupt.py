"""Ctrl-C ends every command, from its start to its end: exit status 130, one line, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Python imports this first. It sends Ctrl-C when the command line imports its module of that number, or at the end.
AT = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class AtImport:
    begun, left = False, {0}

    def find_spec(self, name, path=None, target=None):
        self.begun = self.begun or name == "ddpdoctor.cli"
        self.left -= self.begun
        if self.begun and self.left == 0:
            interrupt()

sys.meta_path.insert(0, AtImport())
if {0} < 0:
    atexit.register(interrupt)
"""
IMPORTS = (1, 2, 3, 5, 10, 20, 40, 60, 80, 100, 120)
COMMAND = (sys.executable, "-m", "ddpdoctor", "list", "DDP101")


@pytest.mark.parametrize("place", [*IMPORTS, -1])
def test_wherever_it_comes_there_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """At any import of the command line, and when all is done."""
    (tmp_path / "sitecustomize.py").write_text(AT.format(place))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (130, "ddpdoctor: ended by SIGINT\n")


@pytest.mark.parametrize("after", [0.05, 0.1, 0.2, 0.3, 0.4, 0.6])
def test_whenever_it_comes_there_is_no_traceback_of_ours(after: float) -> None:
    """Before ddpdoctor has begun, what Python prints is its own."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    ours = "ddpdoctor/cli" in said or "ended by" in said
    assert "Traceback" not in said or not ours
    assert process.returncode in ({130} if ours else {0, 1, -signal.SIGINT})
