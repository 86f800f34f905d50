"""Failures made here, with plain torchrun and no hook, explain themselves by their output alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import FIXTURES, ROOT, TORCHRUN


def explained(*args: str, text: bytes = b"") -> dict[str, Any]:
    """Run ``ddpdoctor explain``."""
    command = [sys.executable, "-m", "ddpdoctor", "explain", "--format", "json", *args]
    done = subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode in {0, 1}, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_broken_case_explains_itself(tmp_path: Path) -> None:
    """What torchrun prints of it names its check first: a torchrun that starts cold, as all others here do not."""
    script = FIXTURES / "unused_parameters" / "broken.py"
    done = subprocess.run(
        [TORCHRUN, "--standalone", "--nproc_per_node=2", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        timeout=90,
        check=False,
    )

    answer = explained("-", text=done.stdout)

    assert done.returncode
    assert answer["first"] is not None
    assert answer["first"]["slug"] == "unused-parameters"


TRAIN = """
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def two_hosts(folder: Path) -> int:
    """Train on two hosts that are namespaces; their output is in the folder."""
    command = ["unshare", "-num", "bash", str(ROOT / "tests" / "two_hosts.sh"), str(folder), str(TORCHRUN)]
    return subprocess.run(command, capture_output=True, timeout=100, check=False).returncode


@pytest.mark.timeout(240)
def test_two_hosts_whose_names_are_loopback(tmp_path: Path) -> None:
    """From both hosts' logs one cause, and the two lines of its fix are the cure."""
    if shutil.which("ip") is None or subprocess.run(["unshare", "-num", "true"], check=False).returncode:
        pytest.skip("no namespaces can be made here")
    (tmp_path / "train.py").write_text(TRAIN)
    assert two_hosts(tmp_path) != 0

    first = explained(str(tmp_path / "node0.log"), str(tmp_path / "node1.log"))["first"]

    assert first["slug"] == "hostname-loopback"
    lines = first["finding"]["fix"]["command"].splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("export GLOO_SOCKET_IFNAME=")
        (tmp_path / f"cure.{line.split()[-1]}").write_text(line + "\n")
    assert two_hosts(tmp_path) == 0


OF_FSDP = """
import sys, torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
model = nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
if sys.argv[1] == "optimizer":
    FSDP.optim_state_dict(model, optimizer)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
    model.state_dict()
"""


@pytest.mark.parametrize("state", ["model", "optimizer"])
def test_the_state_of_a_model_that_fsdp_does_not_wrap(state: str, tmp_path: Path) -> None:
    """What the installed torch says of it is recognised."""
    (tmp_path / "save.py").write_text(OF_FSDP)
    command = [sys.executable, "save.py", state]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, timeout=90, check=False
    )

    first = explained("-", text=done.stdout)["first"]

    assert first["slug"] == "fsdp-state-of-unwrapped-model"
    assert Path(first["finding"]["place"]["file"]).name == "save.py"
