"""Logs in which ddpdoctor itself has said what is wrong: ``explain`` tells so, and does not call them sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import Run

CHECKED = "error DDP305 interface-not-reached: host 0 (a) would use eth0 (fd00:77::1) for gloo, which the"
WAITED = "ddpdoctor: note DDP363 missing-ranks-at-init: torchrun has waited 16 s for 2 nodes, and has started"
END = "ddpdoctor: Nothing wrong was found; 1 note. Watched 1 rank, 256 steps of each."


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of a log that is still to be written."""
    return tmp_path / "a.log"


def test_an_error_of_the_check_is_told(ddpdoctor: Run, log: Path) -> None:
    """With the exit status of a finding, and where it stands."""
    log.write_text(f"{CHECKED}\n  other hosts do not reach: silent\n  seen      a: silent\n\n1 error found.\n")
    done = ddpdoctor("explain", str(log))
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert said.startswith(
        "1 finding that ddpdoctor printed there; no other failure error DDP305 interface-not-reached"
    )
    assert f"{log}:1" in said
    (own,) = json.loads(ddpdoctor("explain", "--format", "json", str(log)).stdout)["own"]
    assert (own["severity"], own["code"], own["line"]) == ("error", "DDP305", 1)
    assert "DDP305" in ddpdoctor("explain", "--format", "markdown", str(log)).stdout
    assert "DDP305" in ddpdoctor("explain", "--quiet", str(log)).stdout


def test_a_note_is_told_and_is_no_failure(ddpdoctor: Run, log: Path) -> None:
    """Another host may still come."""
    log.write_text(f"{WAITED}\n  no rank: they meet at 10.0.0.1:29500\n")
    done = ddpdoctor("explain", str(log))
    assert done.returncode == 0
    assert done.stdout.startswith("no failure in 2 lines")
    assert "DDP363" in done.stdout


def test_who_came_in_the_end_is_not_missed(ddpdoctor: Run, log: Path) -> None:
    """The ranks trained after the note."""
    log.write_text(f"{WAITED}\nepoch 0\n{END}\n")
    done = ddpdoctor("explain", str(log))
    assert (done.returncode, done.stdout) == (0, "no failure in 3 lines\n")


def test_an_error_of_the_training_comes_before(ddpdoctor: Run, log: Path) -> None:
    """What ddpdoctor said of it is not told twice; words of another program are none of its findings."""
    log.write_text(
        f'{CHECKED}\nTraceback (most recent call last):\n  File "/w/t.py", line 3, in f\n    g()\nKeyError: 7\n'
    )
    assert "printed there" not in ddpdoctor("explain", str(log)).stdout
    log.write_text(f"see: {CHECKED}\nerror DDP305 of nothing\n")
    assert ddpdoctor("explain", str(log)).returncode == 0


HANG = "ddpdoctor: error DDP723 rank0-only-collective: rank 0 waits in barrier at train.py:10, under `if rank == 0`"
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:5: Connection reset by peer."


def test_a_hang_that_was_told_comes_before_what_its_end_printed(ddpdoctor: Run, log: Path) -> None:
    """When the job is ended, ranks lose each other; an error that explains itself, or no hang before it, come first."""
    log.write_text(f"{HANG}\n{LOST}\n")
    said = " ".join(ddpdoctor("explain", str(log)).stdout.split())
    assert said.startswith("1 finding that ddpdoctor printed there error DDP723")
    assert "what followed 1 x DDP343" in said
    log.write_text(f"{CHECKED}\n{LOST}\n")
    assert "first cause" in ddpdoctor("explain", str(log)).stdout


def test_a_hang_that_was_told_comes_before_causes_between_which_nothing_decides(ddpdoctor: Run, log: Path) -> None:
    """What gloo prints when it ends a rank fits several; an error of the program does not give way."""
    gloo = (
        "what(): [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 6300 vs 4. Received"
    )
    log.write_text(f"{HANG}\n{gloo} data size doesn't match expected size.\n")
    said = " ".join(ddpdoctor("explain", str(log)).stdout.split())
    assert said.startswith("1 finding that ddpdoctor printed there error DDP723")
    assert "other causes, later or less sure 1 x DDP716" in said
    ended = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"
    log.write_text(f"{HANG}\n{ended}\n")
    assert ddpdoctor("explain", str(log)).stdout.startswith("1 finding that ddpdoctor printed there\n  error DDP723")
    log.write_text(f"{HANG.replace('723', '716')}\n{gloo} Received data size doesn't match expected size.\n")
    assert "first cause" in ddpdoctor("explain", str(log)).stdout, "the same check, which reads more of it there"


def test_where_a_rank_stood_is_a_line_of_the_script(ddpdoctor: Run, log: Path) -> None:
    """Not one of the watch's hooks, wherever it is installed, which an interruption comes to first."""
    log.write_text(
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/train.py", line 13, in step\n[rank0]:     loss.backward()\n'
        '[rank0]:   File "/src/ddpdoctor/watch/rank/hooks/functional.py (importlib._bootstrap)", line 27, in backward\n'
        '[rank0]:   File "/v/lib/python3.11/site-packages/torch/autograd/graph.py", line 979, in _engine_run_backward\n'
        "[rank0]:     return engine.run_backward()\n[rank0]: KeyboardInterrupt\n"
    )
    assert "rank 0 stood in communication, at train.py:13" in " ".join(ddpdoctor("explain", str(log)).stdout.split())
