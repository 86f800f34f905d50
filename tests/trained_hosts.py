"""A training over hosts in network namespaces, ``ddpdoctor run`` on each, in which something happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from namespaces import Hosts

DDPDOCTOR = (sys.executable, "-m", "ddpdoctor")
BEGINS = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(64, 2000))
for step in range(100000):
    model(torch.randn(4, 64)).square().mean().backward()
    time.sleep(0.05)
    if step == 10 and rank == 0:
        print("in training", flush=True)
"""
"""Its gradients take more than a packet; what follows is done in each step."""
STARTS = 90.0  # seconds


@dataclass(frozen=True)
class Trained:
    """What each host has said, by its number, and what ``ddpdoctor explain`` makes of all of that."""

    said: tuple[str, ...]
    explained: str


@dataclass(frozen=True)
class Training:
    """What the ranks do in each ``step``; once they train, something ``happens``.

    All is ended when ``until`` is said on its hosts; with nothing to wait for, after the patience.
    """

    step: str = ""
    happens: Callable[[], object] | None = None
    until: Mapping[int, str] = field(default_factory=dict)
    hang_after: float = 5
    patience: float = 60


def trained(hosts: Hosts, folder: Path, training: Training) -> Trained:
    """Train by hand, one rank a host."""
    (folder / "train.py").write_text(
        BEGINS + "".join(f"    {line}\n" for line in training.step.strip("\n").splitlines())
    )
    logs = [folder / f"{host}.log" for host in range(hosts.count)]
    running = []
    with ExitStack() as stack:
        for host, log in enumerate(logs):
            ranks = {"RANK": str(host), "WORLD_SIZE": str(hosts.count), "LOCAL_RANK": "0"}
            running.append(hosts.start(
                host, *DDPDOCTOR, "run", "--hang-after", str(training.hang_after), "--", sys.executable,
                str(folder / "train.py"), environ=hosts.environ(host, {"NNODES": None, "NODE_RANK": None, **ranks}),
                output=stack.enter_context(log.open("w")), apart=True,
            ))  # fmt: skip
        with ended(hosts, running):
            assert said(logs, {0: "in training"}, STARTS), logs[0].read_text()
            if training.happens is not None:
                training.happens()
            said(logs, training.until or {0: "this is never said"}, training.patience)
    done = subprocess.run([*DDPDOCTOR, "explain", *logs], capture_output=True, text=True, check=False)
    return Trained(tuple(each.read_text() for each in logs), " ".join(done.stdout.split()))


@contextmanager
def ended(hosts: Hosts, running: Iterable[subprocess.Popen[str]]) -> Iterator[None]:
    """End all processes of the hosts afterwards, and wait for those that were started there."""
    try:
        yield
    finally:
        for pid in pids(hosts):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in running:
            process.wait(20)


def pids(hosts: Hosts, *which: int) -> Iterator[int]:
    """Yield the processes of some hosts, or of all."""
    for host in which or range(hosts.count):
        name = f"{hosts.tag}{'abcdefgh'[host]}"
        done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True)
        yield from map(int, done.stdout.split())


def said(logs: list[Path], words: Mapping[int, str], seconds: float) -> bool:
    """Wait until each of these words stands in the log of its host; return whether it does."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if all(text in logs[host].read_text(errors="replace") for host, text in words.items()):
            return True
        time.sleep(0.3)
    return False
