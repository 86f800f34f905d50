"""The end of a rank: a deadlock of torch's is told, and a rank that works on after its process group is left alone."""

from __future__ import annotations

import re
import time

import pytest
from helpers import CHECKS, Command, Run, Script

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import HeldAtEnd, Joined, Site

AFTERWARDS = """
import ctypes, sys, threading, time
import torch, torch.distributed as dist
import torch._dynamo
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def ticking():  # as a progress bar's thread does: it asks for the GIL again and again
    while True:
        time.sleep(0.05)

def train():
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(8, 8) for _ in range(40))), bucket_cap_mb=1e-4)
    for _ in range(3):
        model(torch.randn(4, 8)).square().mean().backward()
    rank = dist.get_rank()
    threading.Thread(target=ticking, daemon=True).start()
    time.sleep(0.5)  # gloo's threads come to rest
    dist.destroy_process_group()
    if rank == 0:
        time.sleep(6)  # an upload
    else:
        ctypes.PyDLL(None).usleep(6_000_000)  # a library that keeps the GIL
    time.sleep(0.5)

dist.init_process_group("gloo")
train()
"""


@pytest.mark.usefixtures("no_process_left")
def test_a_rank_that_works_on_after_its_group_is_no_fault(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """Though its model is there, and its main thread rests: even where nothing else gets the GIL that asks for it."""
    done = ddpdoctor("run", "--hang-after", "2", "--", *torchrun, script(AFTERWARDS))

    assert done.returncode == 0, done.stderr
    assert not re.findall(r"DDP\d{3}", done.stderr), done.stderr


QUEUED = """
import multiprocessing, sys
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
rank = dist.get_rank()
dist.destroy_process_group()
if rank == 0:
    results = multiprocessing.Queue()
    results.put(bytes(int(sys.argv[1])))
    results.close()
    results.join_thread()
"""


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(("size", "is_kept"), [(10**6, True), (10, False)])
def test_a_rank_whose_queue_nobody_reads_is_told(
    torchrun: Command, ddpdoctor: Run, script: Script, size: int, *, is_kept: bool
) -> None:
    """It never ends where it has put in more than a pipe holds; what fits is written, and it ends."""
    options = ("--hang-after", "3", "--on-finding", "raise")
    done = ddpdoctor("run", *options, "--", *torchrun, script(QUEUED), str(size))

    assert ("DDP1706 thread-keeps-rank: rank 0 never ends: what it has put into a queue" in done.stderr) == is_kept
    assert (done.returncode != 0) == is_kept


def test_a_rank_that_is_held_is_told_at_its_call_of_destroy_process_group() -> None:
    """With the line at which it frees the model, and the two lines that mend it."""
    judge = Dispatcher(CHECKS)
    list(judge.see(Joined(pid=7, time=time.time(), rank=1, world_size=2, backend="gloo")))
    event = HeldAtEnd(
        pid=7, time=time.time(), rank=1, site=Site("/home/me/train.py", 40, "main"), models=1,
        destroyed=Site("/home/me/train.py", 33, "train"), seconds=30.0,
    )  # fmt: skip
    [found] = judge.see(event)

    assert found.check.slug == "model-outlives-process-group"
    assert (found.finding.place.line, found.finding.place.rank) == (33, 1)
    assert "train.py:40" in found.finding.message
    assert "+del model, optimizer\n dist.destroy_process_group()" in found.finding.fix.diff


def test_a_rank_that_is_held_in_the_call_itself_is_told_so() -> None:
    """No model needs to be there: with torch 2.2 it is the tensors of the last collective that are freed too soon."""
    site = Site("/home/me/train.py", 33, "main")
    for models in (0, 1):
        event = HeldAtEnd(pid=7, time=time.time(), rank=1, site=site, models=models, destroyed=site, seconds=30.0)
        found = [each.check.slug for each in Dispatcher(CHECKS).see(event)]

        assert found == ["group-freed-before-tensors"]
