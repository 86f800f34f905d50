"""Tests of what the launcher alone knows: by which signal a rank was ended."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import CHECKS, TORCHRUN, Run, Script

from ddpdoctor.watch.command.exits import Exit, exits_in, tell, told
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Failed, FailedAlone
from ddpdoctor.watch.training import Training


@dataclass
class Failure:
    """What torchrun keeps of a process that failed."""

    pid: int
    exitcode: int
    local_rank: int


class ChildFailedError(Exception):
    """Named as torchrun's own."""

    def __init__(self, *failures: Failure) -> None:
        """Keep the failures by rank."""
        super().__init__("train.py")
        self.failures = dict(enumerate(failures))


class ProcessExitedException(Exception):  # noqa: N818 - the name is that of mp.spawn
    """Named as mp.spawn's own."""

    error_pid, exit_code, error_index = 12, -11, 1


@pytest.mark.parametrize(
    ("raised", "exits"),
    [
        (ChildFailedError(Failure(10, 1, 0), Failure(11, -9, 1)), [Exit(11, 9, 1)]),
        (ProcessExitedException(), [Exit(12, 11, 1)]),
        (ChildFailedError(Failure(10, -15, 0), Failure(11, -9, 1)), [Exit(11, 9, 1)]),
        (ChildFailedError(Failure(10, -15, 0)), [Exit(10, 15, 0)]),
        (ValueError("-9"), []),
    ],
)
def test_signals_alone_are_told(raised: Exception, exits: list[Exit], tmp_path: Path) -> None:
    """An exit status that a process has chosen, it tells itself."""
    assert exits_in(raised) == exits

    tell(str(tmp_path), exits)

    assert list(told(str(tmp_path))) == exits
    assert [path.name for path in tmp_path.iterdir()] == ([f"{os.getpid()}.exits"] if exits else [])


def test_a_rank_that_failed_alone_is_named_with_those_that_the_launcher_ended() -> None:
    """No other rank lost it: the launcher was quicker."""
    first = Failed(pid=10, time=1.0, rank=1, error="KeyError", text="KeyError: 'b'")
    found = list(Dispatcher(CHECKS).see_of(Training(), FailedAlone(pid=0, time=2.0, first=first, gone=(0,))))

    assert [each.check.slug for each in found] == ["one-rank-failed"]
    assert found[0].finding.message == "rank 1 alone failed: KeyError: 'b'"
    assert [each.source for each in found[0].finding.evidence] == ["rank 1", "rank 0"]


KILLED = """
import os, signal
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(5):
    if dist.get_rank() == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
"""


@pytest.mark.usefixtures("no_process_left")
def test_a_rank_that_was_killed_is_named_with_its_signal(ddpdoctor: Run, script: Script) -> None:
    """The others only lost their connection to it."""
    done = ddpdoctor("run", "--", str(TORCHRUN), "--standalone", "--nproc_per_node=2", script(KILLED))

    assert "ddpdoctor: error DDP157 host-oom-sigkill: local rank 1 (pid " in done.stderr
    assert "rank-died-or-stuck" not in done.stderr
