"""Errors of ranks that really run: explained once, where they are raised, with what the process knows of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.registry import load_checks
from ddpdoctor.watch.selftest import watched

ALL = load_checks()
FIXTURES = Path(__file__).parents[1] / "fixtures"
RAISED = (
    "attributes-behind-wrapper", "batchnorm-of-one", "lazy-parameters", "mixed-devices", "module-prefix",
    "no-trainable-parameters", "one-rank-failed", "orig-mod-prefix", "parameters-differ", "ready-twice",
    "shuffle-with-sampler", "strides-differ", "syncbn-on-cpu", "unknown-keyword", "unused-parameters",
    "unused-parameters-differ",
)  # fmt: skip


@pytest.mark.parametrize("slug", RAISED)
def test_the_patient_is_explained_and_the_control_is_left_in_peace(slug: str, jobs: Jobs) -> None:
    """One finding, by the check whose ailment it is, at a line of the script; nothing on the healthy twin."""
    folder = FIXTURES / slug.replace("-", "_")
    found = watched(folder / "patient.py", ALL, jobs)

    assert [each.check.slug for each in found] == [slug]
    assert found[0].finding.place.file == str(folder / "patient.py")
    assert found[0].finding.place.line
    assert not watched(folder / "control.py", ALL, jobs)


HEAD = """
import os, socket, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])
"""
SCRIPTS = {
    "a variable of the rendezvous is missing": (
        "rendezvous-incomplete",
        "MASTER_ADDR is not set",
        "WORLD_SIZE=2",
        """
        del os.environ["MASTER_ADDR"]
        dist.init_process_group("gloo")  # guilty
        """,
    ),
    "the port is in use": (
        "port-in-use",
        "is in use on this host already",
        "listens on port",
        """
        if RANK == 1:
            time.sleep(60)
        import subprocess, sys
        holder = subprocess.Popen(
            [sys.executable, "-c", "import socket, time; s = socket.create_server(('', 0)); "
             "print(s.getsockname()[1], flush=True); time.sleep(5)"], stdout=subprocess.PIPE, text=True)
        os.environ["MASTER_PORT"] = holder.stdout.readline().strip()
        dist.init_process_group("gloo")  # guilty
        """,
    ),
    "no process group": (
        "process-group-not-initialized",
        "init_process_group",
        "",
        """
        DDP(nn.Linear(4, 4))  # guilty
        """,
    ),
    "a state dict within a checkpoint, with keys of DDP": (
        "module-prefix",
        "4 keys of the checkpoint carry module.",
        "",
        """
        dist.init_process_group("gloo")
        def net():
            return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        path = f"{RANK}.ckpt"
        torch.save({"epoch": 3, "state": {"model": DDP(net()).state_dict()}}, path)
        checkpoint = torch.load(path)
        net().load_state_dict(checkpoint["state"]["model"])  # guilty
        """,
    ),
    "more parameters on one rank": (
        "parameters-differ",
        "rank 1 builds another model than rank 0: parameter 2 is 1.weight [4, 4], on rank 0 (no more)",
        "1.weight [4, 4], of 4",
        """
        dist.init_process_group("gloo")
        net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(RANK + 1)])
        DDP(net)  # guilty
        """,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_errors_of_scripts_are_explained(name: str, tmp_path: Path, jobs: Jobs) -> None:
    """The check, what it says, what the process has seen besides, and the guilty line."""
    slug, message, seen, text = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(HEAD + dedent(text))
    found = watched(script, ALL, jobs)

    assert [each.check.slug for each in found] == [slug]
    finding = found[0].finding
    assert message in finding.message
    assert any(seen in each.seen for each in finding.evidence)
    assert finding.place.line == line_of("# guilty", script)


def line_of(text: str, script: Path) -> int:
    """Give the number of the first line that holds this text."""
    return next(number for number, line in enumerate(script.read_text().splitlines(), 1) if text in line)
