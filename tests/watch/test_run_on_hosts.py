"""``ddpdoctor run`` on each of two hosts, really: what it says there, and what ``explain`` makes of both logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from namespaces import Hosts, network

TORCHRUN = Path(sys.executable).with_name("torchrun")
DDPDOCTOR = (sys.executable, "-m", "ddpdoctor")
BEGINS = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(20, 300))
"""
ALONE = """
for i in range(100000):
    model(torch.randn(4, 20)).square().mean().backward()
    if i == 20 and rank == 0:
        dist.all_reduce(torch.ones(1))
"""
PASSES = """
for i in range(30 + 3 * rank):
    dist.all_reduce(torch.ones(4))
dist.barrier()
"""
STOPPED = """
import signal
for i in range(100000):
    model(torch.randn(4, 20)).square().mean().backward()
    if i == 20 and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
"""
WAITS = "which this host does not see"
CASES = {
    "gloo ends a rank": (ALONE, "", ("error DDP723 rank0-only-collective", ""), "DDP723 rank0-only-collective"),
    "other passes": (PASSES, WAITS, (WAITS, WAITS), "DDP712 ranks-diverge: rank 0 has left the loop"),
    "stopped": (STOPPED, WAITS, (WAITS, "error DDP720 rank-died-or-stuck: rank 1 stopped by a signal"), "DDP720"),
}
"""The loop; what a host says when the job is to be ended; what each host says; what both logs come to."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Yield two hosts."""
    with network(2) as made:
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_a_training_over_two_hosts_is_told(hosts: Hosts, name: str, tmp_path: Path) -> None:
    """On the host where it can be seen; and by both logs, also after somebody has ended the job that hung."""
    loop, until, said, both = CASES[name]
    (script := tmp_path / "train.py").write_text(BEGINS + loop)
    logs = [tmp_path / f"{host}.log" for host in "ab"]
    options = ("--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_endpoint=10.77.0.1:29500")
    command = (*DDPDOCTOR, "run", "--hang-after", "5", "--", str(TORCHRUN), *options, str(script))
    environ = hosts.environ(0, dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")))
    with ExitStack() as stack:
        outputs = [stack.enter_context(log.open("w")) for log in logs]
        running = [
            hosts.start(host, *command, environ=environ, output=output, apart=True)
            for host, output in enumerate(outputs)
        ]
        ends = time.monotonic() + 150
        while time.monotonic() < ends and any(each.poll() is None for each in running):
            if until and all(words in log.read_text() for words, log in zip(said, logs, strict=True)):
                break
            time.sleep(0.3)
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait(20)
    explained = subprocess.run([*DDPDOCTOR, "explain", *logs], capture_output=True, text=True, check=False)

    for words, log in zip(said, logs, strict=True):
        assert words in log.read_text(), log.read_text()
    assert both in " ".join(explained.stdout.split()[:40]), explained.stdout
