"""Slurm, really: a controller and two daemons on hosts in network namespaces, and what its users start there."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import TORCHRUN, WITHOUT_JOBS
from namespaces import network
from slurm import Slurm, missing_programs, slurm

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=missing_programs())
DDPDOCTOR = str(TORCHRUN.with_name("ddpdoctor"))
PYTHON = str(TORCHRUN.with_name("python"))
BY_SLURM = """
import os
os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
"""
STANDS = """
if dist.get_rank() == 1:
    time.sleep(600)  # here
dist.barrier()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Yield a cluster of two nodes."""
    with network(2) as hosts, slurm(hosts) as made:
        yield made


def test_srun_starts_it_on_each_node(cluster: Slurm) -> None:
    """One task a node looks; the others, and the second node, say where the report is."""
    done = cluster.run("srun", "--nodes=2", "--ntasks-per-node=2", DDPDOCTOR, "check", *WITHOUT_JOBS)

    assert done.status == 0, done.said
    assert "2 of 2 hosts met, and each reaches each other (one connection, 32 kB)." in done.out
    assert "ddpdoctor: host 1 (b) of 2: 0 findings here; a reports" in done.out
    assert done.err.count("local rank 1: local rank 0 looks at this host") == 2


def test_sbatch_starts_it(cluster: Slurm) -> None:
    """In a batch script, by srun; the fault of a node is named, and the status of the job is that of the check."""
    script, log = cluster.hosts.folder / "job.sh", cluster.hosts.folder / "job.log"
    command = shlex.join(("srun", "--ntasks-per-node=1", DDPDOCTOR, "check", *WITHOUT_JOBS))
    script.write_text(f"#!/bin/sh\n#SBATCH --nodes=2\n{command}\n")
    cluster.hosts.resolve(1, {"b": "127.0.1.1"})
    try:
        done = cluster.run("sbatch", "--wait", f"--output={log}", str(script))
    finally:
        cluster.hosts.resolve(1)

    assert done.status == 1, done.said
    assert "DDP301" in log.read_text()
    assert "b resolves to 127.0.1.1" in log.read_text()


@pytest.mark.nightly
def test_run_under_srun_and_stuck_in_its_job(cluster: Slurm, tmp_path: Path) -> None:
    """Each task is watched on its node; a look from a second step of the job, node by node, names who stands."""
    script, report = tmp_path / "train.py", tmp_path / "report"
    script.write_text(BY_SLURM + STANDS)
    meeting = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29533"}
    log = (tmp_path / "log").open("w+")
    begun = ("srun", "--nodes=2", "--ntasks-per-node=1", DDPDOCTOR, "run", "--hang-after", "4", "--", PYTHON)
    training = cluster.hosts.start(0, *begun, str(script), environ=cluster.environ | meeting, output=log)
    try:
        wait_for(Path(log.name), "which this host does not see")
        job = cluster.run("squeue", "-h", "-o", "%i").out.split()[0]
        look = shlex.join((DDPDOCTOR, "stuck", "--seconds", "2", "--report"))
        looked = cluster.run(
            "srun",
            f"--jobid={job}",
            "--overlap",
            "--nodes=2",
            "--ntasks-per-node=1",
            "sh",
            "-c",
            f"{look} {report}.$(hostname)",
        )
        both = cluster.run(DDPDOCTOR, "explain", *(f"{report}.{name}" for name in "ab"))
        via = f"srun --jobid={job} --overlap --nodes=1 --ntasks=1 --nodelist={{}}"
        at_once = cluster.run(DDPDOCTOR, "stuck", "--seconds", "2", "--hosts", "a,b", "--via", via)
    finally:
        cluster.run("scancel", "--user=root")
        training.kill()
        training.wait(30)
        log.close()

    for each in (both, at_once):
        assert each.status == 1, looked.said + each.said
        assert "rank 1 standing still" in each.out
        assert "train.py:9" in each.out


def wait_for(path: Path, words: str) -> None:
    """Wait until a file has these words."""
    ends = time.monotonic() + 120
    while words not in path.read_text() and time.monotonic() < ends:
        time.sleep(0.2)
    assert words in path.read_text(), path.read_text()
