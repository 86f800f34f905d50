"""Launchers of their own kinds: one that waits for other nodes, one that is itself a rank."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import TORCHRUN, Port, Run, Script

from ddpdoctor.cluster.command import rendezvous


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
