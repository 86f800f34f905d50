"""A collective that one rank calls by itself is named, though a later, innocent one is where the training ends."""

from __future__ import annotations

import re

import pytest
from helpers import Command, Run, Script

from ddpdoctor.check import one_rank_calls
from ddpdoctor.checks.collectives.hangs.calls._alone import called_alone
from ddpdoctor.watch.events import Communication, Failed, PeerLost, Progress, Site

HEAD = """
import ctypes, os, threading, time
import torch, torch.distributed as dist
import torch._dynamo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def train():
    model = DistributedDataParallel(nn.Linear(100, 100))
    for number in range(5):
        model(torch.randn(4, 100)).square().mean().backward()
"""
ABORTS = """
        if number == 2:
            if rank == 0:
                dist.all_reduce(torch.ones(1))  # here
"""
LEAVES = """
    if rank == 0:
        time.sleep(1)
        dist.all_reduce(torch.ones(1))  # here
"""
UNNOTICED = """
        store = dist.distributed_c10d._get_default_store()
        if number == 2:
            if rank == 0:
                dist.all_reduce(torch.ones(1), async_op=True)  # here
                store.wait(["gone on"])
                threading.Thread(target=ctypes.CDLL(None).abort).start()  # as gloo does, in a thread of its own
                time.sleep(100)
            model(torch.randn(4, 100))
            store.set("gone on", "")
            time.sleep(100)
"""
TAIL = """
dist.init_process_group("gloo")
rank = dist.get_rank()
train()
"""


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("body", [ABORTS, LEAVES], ids=["gloo aborts the rank", "the others have left"])
@pytest.mark.parametrize("broken", [True, False])
def test_its_line_is_named(torchrun: Command, ddpdoctor: Run, script: Script, body: str, *, broken: bool) -> None:
    """Not memory, not a rank that left early; where all ranks call it nothing is said."""
    text = HEAD + (body if broken else body.replace("if rank == 0", "if rank >= 0")) + TAIL
    done = ddpdoctor("run", "--", *torchrun, path := script(text))
    told = [line for line in done.stderr.splitlines() if re.match(r"ddpdoctor: (error|warning|note)", line)]

    assert [re.findall(r"DDP\d{3}", line) for line in told] == ([["DDP723"]] if broken else []), done.stderr
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)
    assert not broken or f"{path}:{line}, rank 0" in done.stderr


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(
    ("start", "expected"),
    [((), [["DDP723"]]), (("sh", "-c", '"$@"; kill -TERM $PPID; while :; do sleep 0.1; done', "sh"), [])],
    ids=["torchrun", "asked to end"],
)
def test_its_line_is_named_where_the_launcher_was_quicker(
    torchrun: Command, ddpdoctor: Run, script: Script, start: Command, expected: list[list[str]]
) -> None:
    """The other rank is ended before it can notice; of a run that was asked to end nothing is concluded."""
    path = script(HEAD + UNNOTICED + TAIL)
    done = ddpdoctor("run", "--", *start, *torchrun, path)
    told = [line for line in done.stderr.splitlines() if re.match(r"ddpdoctor: (error|warning|note)", line)]

    assert [re.findall(r"DDP\d{3}", line) for line in told] == expected, done.stderr


def lost(path: str, *, forwards: int, calls: int) -> PeerLost:
    """Make the end of a training whose rank 0 was killed in its second all_reduce, at line 2 of a file."""
    call = [Communication(number, 0.0, "all_reduce", "0", "[1]", Site(path, 2, "train")) for number in (1, 2)]
    said = Failed(pid=2, time=1.0, rank=1, error="RuntimeError", text="Connection closed by peer")
    ranks = (
        Progress(rank=0, forwards=3, recent=tuple(call)),
        Progress(rank=1, forwards=forwards, recent=tuple(call[:calls])),
    )
    return PeerLost(pid=0, time=2.0, first=None, others=(said,), gone=(0,), progress=ranks)


@pytest.mark.parametrize(
    ("forwards", "calls", "test", "expected"),
    [(4, 1, "rank == 0", True), (4, 2, "rank == 0", False), (3, 1, "rank == 0", False), (4, 1, "debug", False)],
    ids=["gone on", "called as well", "not there yet", "no condition on the rank"],
)
def test_a_rank_that_was_killed_in_a_collective_of_all_is_no_such_case(
    script: Script, forwards: int, calls: int, test: str, *, expected: bool
) -> None:
    """The other one must have gone on without it, and the line must stand under a condition on the rank."""
    path = script(f"if {test}:\n    dist.all_reduce(x)\n")

    assert (called_alone(lost(path, forwards=forwards, calls=calls)) is not None) is expected


ONE_OR_ALL = """
def metric(x):
    dist.all_reduce(x)

def validate(x):
    metric(x)

if int(os.environ["RANK"]) == 0:
    validate(x)
{}
"""


@pytest.mark.parametrize(("more", "expected"), [("", True), ("validate(x)", False)], ids=["one rank", "all ranks"])
def test_a_condition_around_a_caller_of_the_caller_counts(script: Script, more: str, *, expected: bool) -> None:
    """As long as no other call of it is open to all ranks."""
    path = str(script(ONE_OR_ALL.format(more)))

    assert bool(one_rank_calls(path, "metric")) is expected
