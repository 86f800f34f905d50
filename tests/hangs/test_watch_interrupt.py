"""Ctrl-C ends a hung training within seconds, and takes nothing from a rank that still has something to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import Command, Script

from ddpdoctor.watch.event_log import Reader
from ddpdoctor.watch.events import Doing
from ddpdoctor.watch.monitor.followed import Followed
from ddpdoctor.watch.monitor.rank import Rank
from ddpdoctor.watch.run import PATIENCE
from ddpdoctor.watch.training import Training

HANGS = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
os.write(1, b"up\\n")
if rank == 0:
    dist.barrier()
else:
    dist.all_reduce(torch.ones(3))
"""
SAVES = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
os.write(1, b"up\\n")
if dist.get_rank() == 0:
    dist.barrier()
try:
    time.sleep(60)
except KeyboardInterrupt:
    until = time.monotonic() + 8
    while time.monotonic() < until:
        pass
    os.write(1, b"saved\\n")
    os._exit(0)
"""
KEY = """
import os
import torch.distributed as dist

dist.init_process_group("gloo")
os.write(1, b"up\\n")
if dist.get_rank() == 0:
    dist.distributed_c10d._get_default_store().wait(["ready"])
dist.barrier()
"""
OWN_KEY = """
import os
import torch.distributed as dist

dist.init_process_group("gloo")
os.write(1, b"up\\n")
ports = [None]
if dist.get_rank() == 0:
    own = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    ports = [own.port]
dist.broadcast_object_list(ports, 0)
if dist.get_rank() == 1:
    dist.TCPStore("127.0.0.1", ports[0], 2, is_master=False).get("ready")
dist.barrier()
"""
WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as one that waits in native code
os.write(1, b"up\\n")
time.sleep(60)
"""
SOON = 22  # seconds: torchrun waits for its ranks for 30


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(
    ("text", "printed"),
    [(HANGS, ""), (KEY, ""), (OWN_KEY, ""), (SAVES, "saved\n")],
    ids=["hangs", "waits for a key", "waits for a key of another store", "saves"],
)
def test_ctrl_c(torchrun: Command, script: Script, tmp_path: Path, text: str, printed: str) -> None:
    """As a terminal sends it: to the whole process group. The last line says that this has ended the command."""
    command = [sys.executable, "-m", "ddpdoctor", "run", "--", *torchrun, script(text)]
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(SOON) != 0
        assert process.stdout.read() == printed
    said = errors.read_text()
    assert "ddpdoctor: The command was ended by Ctrl-C" in said or "Nothing wrong was found" in said, said


def test_what_ends_a_hang_is_no_fault_of_its_own(tmp_path: Path) -> None:
    """A launcher that is told to end kills the ranks, is seen without them, and fails: that follows from the hang."""
    ranks = [Rank(Reader(tmp_path / f"{pid}.events"), rank, None, since=1.0) for rank, pid in enumerate((7, 8))]
    followed = Followed(Training(), ranks, stands=((0, Doing.WAITING, "barrier"), (1, Doing.WAITING, "all_reduce")))
    followed.hung_at = 2.0
    followed.look(3.0)

    assert not followed.hung
    assert followed.hung_until_now
    ranks[1].since = 3.0  # it has trained on since
    assert not followed.hung_until_now


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(("nodes", "ended"), [("2", True), ("1", False)])
def test_ctrl_c_ends_a_torchrun_that_waits_for_other_nodes(tmp_path: Path, nodes: str, ended: bool) -> None:  # noqa: FBT001
    """It has no rank, and hears nothing in native code; any other command is left to its own end."""
    launcher = tmp_path / "torchrun"
    launcher.write_text(WAITS)
    command = [sys.executable, "-m", "ddpdoctor", "run", "-q", "--", sys.executable, str(launcher), f"--nnodes={nodes}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.killpg(process.pid, signal.SIGINT)
        if ended:
            assert process.wait(SOON) == 128 + signal.SIGTERM
            return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(PATIENCE + 2)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(SOON) == 128 + signal.SIGTERM
