"""Ranks that torch.distributed.rpc alone has joined: they are seen, and who never came to it is named."""

from __future__ import annotations

import sys

import pytest
from helpers import CHECKS, Run, Script

from ddpdoctor.findings import Severity
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import RPC, Doing, Joining, Position, Site, Stalled
from ddpdoctor.watch.events.hang import INIT_RPC

SERVED = """
import os, sys
import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def step(inputs):
    optimizer.zero_grad()
    net(inputs).square().mean().backward()
    optimizer.step()

def run(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", os.environ["PORT"]
    rpc.init_rpc(f"node{rank}", rank=rank, world_size=world_size)
    if rank == 1:
        for _ in range(5):
            rpc.rpc_sync("node0", step, args=(torch.randn(2, 4),))
    rpc.shutdown()

if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]),), nprocs=2)
"""
LINE = SERVED[: SERVED.index("    rpc.init_rpc(")].count("\n") + 1


@pytest.mark.usefixtures("no_process_left")
def test_ranks_that_have_rpc_alone_are_seen(ddpdoctor: Run, script: Script) -> None:
    """A server trains, and what calls it does not: nothing is said of that."""
    done = ddpdoctor("run", "--", sys.executable, script(SERVED), "2")

    assert done.returncode == 0, done.stderr
    assert "Watched 2 ranks" in done.stderr
    assert "DDP" not in done.stderr


@pytest.mark.usefixtures("no_process_left")
def test_a_worker_that_is_counted_and_not_started_is_told(ddpdoctor: Run, script: Script) -> None:
    """At the line that says how many there are."""
    done = ddpdoctor("run", "--hang-after", "5", "--on-finding", "raise", "--", sys.executable, script(SERVED), "3")

    assert done.returncode == 1
    assert f"rpc.init_rpc is told 3 workers at train.py:{LINE}, and mp.spawn has started 2" in done.stderr
    assert "init_process_group" not in done.stderr


def test_a_rank_that_never_comes_to_init_rpc_is_told_in_its_words() -> None:
    """As in init_process_group, which RPC does not call."""
    judge = Dispatcher(CHECKS)
    told = Joining(
        pid=1, time=1.0, rank=0, world_size=2, backend=RPC, address="localhost:29500", site=Site("train.py", 5, "run")
    )
    list(judge.see(told))
    waits = Position(rank=0, pid=1, doing=Doing.WAITING, seconds=9, site=Site("train.py", 5, "run"), operation=INIT_RPC)
    stands = Position(rank=1, pid=2, doing=Doing.STANDING, seconds=9, site=Site("train.py", 3, "run"))
    (found,) = judge.see(Stalled(pid=0, time=2.0, ranks=(waits, stands), world_size=2))

    assert found.check.slug == "missing-ranks-at-init"
    assert found.finding.message.startswith("rank 1 of 2 did not come to rpc.init_rpc; rank 0 waits in it")
    assert found.finding.severity in {None, Severity.ERROR}
    assert "init_process_group" not in str(found.finding)
