"""Launchers of their own kinds: one that waits for other nodes, one that is itself a rank."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from helpers import TORCHRUN, Port, Run, Script

from ddpdoctor.checks.rendezvous.master.master_port_in_use import by_another_launcher
from ddpdoctor.cluster.command import rendezvous
from ddpdoctor.watch.events import Failed
from ddpdoctor.watch.monitor import launcher
from ddpdoctor.watch.monitor.ranks import Ranks
from ddpdoctor.watch.settings import HANGS


@pytest.mark.parametrize(
    ("command", "nodes"),
    [
        ("torchrun --nnodes=2 train.py", 2),
        ("/env/bin/python /env/bin/torchrun --nproc_per_node 2 --nnodes 2:4 train.py", 2),
        ("python -m torch.distributed.run --nnodes=1:4 train.py", 1),
        ("torchrun --standalone train.py --nnodes=2", 1),
        ("python train.py --nnodes=2", None),
        ("torchrun --nnodes=$N train.py", 1),
    ],
)
def test_how_many_nodes_a_command_waits_for(command: str, nodes: int | None) -> None:
    """The least number that the launcher is told; an argument of the script is none of it."""
    meeting = rendezvous(command.split())

    assert (None if meeting is None else meeting.nodes) == nodes


@pytest.mark.usefixtures("no_process_left")
def test_the_wait_is_told_while_it_lasts(free_port: Port, script: Script, tmp_path: Path) -> None:
    """As a note, once, while no rank is there; the launcher is a real one, which hears no signal meanwhile."""
    watch = (sys.executable, "-m", "ddpdoctor", "run", "--hang-after", "1", "--")
    meet = ("--master_addr=127.0.0.1", f"--master_port={free_port()}", "--node_rank=0")
    command = (*watch, str(TORCHRUN), "--nnodes=2", "--nproc_per_node=1", *meet, script("print('never')"))
    said = tmp_path / "stderr"
    with said.open("w") as file, subprocess.Popen(command, stderr=file) as started:
        until = time.monotonic() + 90
        while "DDP363" not in said.read_text() and started.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        for each in psutil.Process(started.pid).children(recursive=True):
            each.kill()
    told = [line for line in said.read_text().splitlines() if line.startswith("ddpdoctor: note DDP363")]

    assert len(told) == 1, said.read_text()
    assert "torchrun has waited" in told[0]


def refused(holder: str) -> Failed:
    """Return what torchrun fails of whose port is taken, and who is seen to have it."""
    text = (
        'Traceback:\n  File "/env/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 67, in next\n'
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        " 29711, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    seen = ((f"pid 7 ({holder}) listens on port 29711", "TCP sockets of this host"),)
    return Failed(pid=1, time=1.0, error="torch.distributed.DistNetworkError", text=text, seen=seen)


@pytest.mark.parametrize(
    ("holder", "tool"),
    [("python3 torchrun --nproc-per-node=2 a.py", "torchrun"), ("python accelerate launch a.py", "accelerate")],
)
def test_a_launcher_that_has_the_port_is_named(holder: str, tool: str) -> None:
    """With its process, and what it runs."""
    (found,) = by_another_launcher.functions[0](refused(holder))

    assert found.message == f"port 29711 is in use on this host already: another {tool} runs here, pid 7 ({holder})"


def test_another_program_with_the_port_is_left_to_the_log_pattern() -> None:
    """So is a script that only has the word in its name."""
    assert not list(by_another_launcher.functions[0](refused("python torchrunner.py")))


@pytest.mark.usefixtures("no_process_left")
def test_a_second_job_at_one_rendezvous_is_told_what_it_waits_for(
    free_port: Port, script: Script, tmp_path: Path
) -> None:
    """The first job of one node has it; torchrun itself says nothing."""
    meet = (str(TORCHRUN), "--rdzv_backend=c10d", f"--rdzv_endpoint=localhost:{free_port()}", "--nproc_per_node=1")
    runs = tmp_path / "runs"
    first = script(f"import time\nopen({str(runs)!r}, 'w').close()\ntime.sleep(120)\n")
    watch = (sys.executable, "-m", "ddpdoctor", "run", "--hang-after", "1", "--")
    said = tmp_path / "stderr"
    until = time.monotonic() + 120
    with said.open("w") as file, subprocess.Popen((*meet, first)) as holds:
        while not runs.exists() and time.monotonic() < until:
            time.sleep(0.1)
        with subprocess.Popen((*watch, *meet, first), stderr=file) as started:
            while "DDP363" not in said.read_text() and started.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
            for each in psutil.Process(started.pid).children(recursive=True):
                each.kill()
        for each in (*psutil.Process(holds.pid).children(recursive=True), psutil.Process(holds.pid)):
            each.kill()

    assert f"has it: pid {holds.pid} " in " ".join(said.read_text().split())


@pytest.mark.parametrize(
    ("first", "second", "full"),
    [
        ("", "", True),
        ("--nnodes=1", "--nnodes=1:1", True),
        ("--rdzv-id=a", "--rdzv-id=b", False),
        ("--nnodes=1:4", "--nnodes=1:4", False),
        ("--nnodes=2", "", False),
    ],
)
def test_when_a_rendezvous_is_full(monkeypatch: pytest.MonkeyPatch, first: str, second: str, full: bool) -> None:  # noqa: FBT001
    """Where both launchers are of one node and name one id; one that others can come to waits for them by right."""
    meet = "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:29400"
    holder = SimpleNamespace(pid=7, port=29400, command="torchrun a.py")
    host = SimpleNamespace(listeners=(holder,))
    theirs = SimpleNamespace(cmdline=f"{meet} {first} a.py".split)
    monkeypatch.setattr(launcher, "gather_network", lambda: host)
    monkeypatch.setattr(psutil, "Process", lambda _: theirs)

    meeting = rendezvous(f"{meet} {second} b.py".split())

    assert meeting is not None
    assert launcher._taken_by(8, meeting) == ("pid 7 (torchrun a.py)" if full else "")


def test_a_hang_that_was_told_is_known_to_launchers_while_it_lasts(tmp_path: Path) -> None:
    """They are ended by a signal then, which is no fault of its own."""
    ranks = Ranks(str(tmp_path))
    for told in (True, True, False, False):
        ranks.hang(told=told)

        assert (tmp_path / HANGS).exists() is told


ITS_OWN = """
import os, subprocess, sys
import torch
import torch.distributed as dist

if "LOCAL_RANK" not in os.environ:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT={port!r}, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    subprocess.Popen([sys.executable, os.path.realpath(__file__)], env=os.environ | {{"RANK": "1", "LOCAL_RANK": "1"}})
dist.init_process_group("gloo")
torch.save({{"w": torch.ones(2)}}, "last.pt")  # guilty
dist.barrier()
dist.destroy_process_group()
"""


def test_one_line_is_one_line_however_the_script_was_named(
    ddpdoctor: Run, python: str, script: Script, free_port: Port, tmp_path: Path
) -> None:
    """Lightning starts the other ranks by the script's full name, and rank 0 as ``folder/../train.py``."""
    (tmp_path / "folder").mkdir()
    script(ITS_OWN.format(port=str(free_port())))

    done = ddpdoctor("run", "--", python, f"{tmp_path}/folder/../train.py", cwd=tmp_path)

    assert "error DDP851 checkpoint-written-by-several-ranks" in done.stderr
