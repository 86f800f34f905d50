"""A launcher that waits for other nodes, and has started no rank."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import TORCHRUN, Port, Script

from ddpdoctor.watch.monitor.launcher import nodes_of


@pytest.mark.parametrize(
    ("command", "nodes"),
    [
        ("torchrun --nnodes=2 train.py", 2),
        ("/env/bin/python /env/bin/torchrun --nproc_per_node 2 --nnodes 2:4 train.py", 2),
        ("python -m torch.distributed.run --nnodes=1:4 train.py", 1),
        ("torchrun --standalone train.py --nnodes=2", 1),
        ("python train.py --nnodes=2", 1),
        ("torchrun --nnodes=$N train.py", 1),
    ],
)
def test_how_many_nodes_a_command_waits_for(command: str, nodes: int) -> None:
    """The least number that the launcher is told; an argument of the script is none of it."""
    assert nodes_of(command.split()) == nodes


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
