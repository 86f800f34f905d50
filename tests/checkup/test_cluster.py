"""Several hosts, in one process: what launchers set, what the matrix proves, and a meeting that strangers disturb."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, strategies as st

from ddpdoctor.checks.rendezvous.missing import hosts_missing
from ddpdoctor.checks.rendezvous.numbers import node_rank_taken_twice, world_sizes_differ
from ddpdoctor.cli.checkup.hosts import Session, launch_of_several, summary, uncounted
from ddpdoctor.cli.checkup.opening import Opening
from ddpdoctor.cli.screen.show import Show
from ddpdoctor.cluster import probing
from ddpdoctor.cluster.cluster import Cluster
from ddpdoctor.cluster.command import launch_of, told as told_by
from ddpdoctor.cluster.host import Host, ProtocolError, as_data, host_from
from ddpdoctor.cluster.launch import Launch, first_host, read_launch, several_hosts
from ddpdoctor.cluster.launchers import LAUNCHERS
from ddpdoctor.cluster.matrix import Link, row_data, row_from
from ddpdoctor.cluster.meet.meeting import Meeting
from ddpdoctor.cluster.meet.serving import Roster
from ddpdoctor.cluster.plan import FULL, links, sources, targets
from ddpdoctor.cluster.probing import LARGE_LOST, OK, Answer, probe
from ddpdoctor.cluster.reported import as_data as findings_data, with_reported, without_effects
from ddpdoctor.cluster.suspects import Fault, suspects
from ddpdoctor.cluster.wire.client import OTHER_JOB, Client, find
from ddpdoctor.cluster.wire.ports import listening
from ddpdoctor.cluster.wire.protocol import LONGEST, Lines, Seal, seals
from ddpdoctor.cluster.wire.server import STRANGERS, Server
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import (
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Hosts,
    Place,
    Report,
    Result,
    Severity,
    Status,
    Table,
)
from ddpdoctor.host.facts import Facts, gather
from ddpdoctor.host.process.connections import peers
from ddpdoctor.jobs.pool import Jobs
from ddpdoctor.registry import find as find_check, load_checks
from ddpdoctor.report.hosts import alike, hosts_text
from ddpdoctor.report.style import PLAIN

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "j7", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1", "RANK": "4", "WORLD_SIZE": "8",
    "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29400",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SLURM = {
    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "4", "SLURM_NODEID": "3", "SLURM_PROCID": "3", "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "17", "SLURM_STEP_NODELIST": "gpu[003-005,9],login",
}  # fmt: skip
LAUNCHES = {
    "torchrun": (TORCHRUN, ("torchrun", 2, 1, 4, 0, "a", 29400)),
    "torchrun within Slurm": ({**SLURM, **TORCHRUN}, ("torchrun", 2, 1, 4, 0, "a", 29400)),
    "srun": (SLURM, ("Slurm", 4, 3, 3, 0, "gpu003", 29500)),
    "srun, with a master": ({**SLURM, "MASTER_ADDR": "x"}, ("Slurm", 4, 3, 3, 0, "x", 29500)),
    "by hand": (
        {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"},
        ("by hand", 2, 1, None, None, "10.0.0.1", 1234),
    ),
    "mpirun": (
        {
            "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "a",
        },
        ("Open MPI", 2, 1, 1, 0, "a", 29500),
    ),
    "mpiexec of MPICH": (
        {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "a"},
        ("MPICH", 2, 1, 2, 0, "a", 29500),
    ),
    "PyTorchJob": (
        {"KUBERNETES_SERVICE_HOST": "x", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0"},
        ("by hand", 2, 1, 1, None, "job-master-0", 29500),
    ),
    "PyTorchJob, elastic": (
        {"PET_NNODES": "1:4", "PET_NODE_RANK": "2", "PET_RDZV_ENDPOINT": "job-worker-0:23456"},
        ("the training operator", 4, 2, None, None, "job-worker-0", 29500),
    ),
    "SageMaker": (
        {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"},
        ("SageMaker", 2, 1, None, None, "algo-1", 29500),
    ),
    "AzureML": (
        {"AZUREML_RUN_ID": "r", "AZUREML_NODE_COUNT": "2", "NODE_RANK": "1", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
        ("AzureML", 2, 1, None, None, "10.0.0.4", 29500),
    ),
    "AzureML, an MPI job": (
        {
            "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4",
        },
        ("Open MPI", 2, 1, 1, 0, "10.0.0.4", 29500),
    ),
    "Ray Train": (
        {
            "ACCELERATE_TORCH_DEVICE": "cpu", "NODE_RANK": "1", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
            "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "41233",
        },
        ("Ray Train", 2, 1, 5, 1, "10.0.0.1", 41233),
    ),
    "deepspeed": (
        {"CROSS_SIZE": "2", "CROSS_RANK": "1", "LOCAL_SIZE": "8", "RANK": "8", "WORLD_SIZE": "16", "LOCAL_RANK": "0"},
        ("deepspeed", 2, 1, 8, 0, "", 29500),
    ),
    "jsrun": (
        {
            "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_RANK": "0",
            "JSM_NAMESPACE_LOCAL_SIZE": "1", "LSB_MCPU_HOSTS": "batch1 1 h1n1 42 h1n2 42",
        },
        ("jsrun", 2, 1, 1, 0, "h1n1", 29500),
    ),
    "jsrun, whose MPI is Open MPI's": (
        {
            "JSM_NAMESPACE_RANK": "6", "JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_LOCAL_RANK": "0",
            "JSM_NAMESPACE_LOCAL_SIZE": "6", "OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "12",
            "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "6",
            "LSB_MCPU_HOSTS": "batch1 1 h1n1 42 h1n2 42",
        },
        ("jsrun", 2, 1, 6, 0, "h1n1", 29500),
    ),
    "mpirun within LSF": (
        {
            "LSB_MCPU_HOSTS": "n1 4 n2 4", "OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "8",
            "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        },
        ("Open MPI", 2, 1, 4, 0, "n1", 29500),
    ),
    "mpirun within Slurm, whose daemons are steps": (
        {
            **SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1",
            "SLURM_STEP_NODELIST": "gpu02", "SLURM_JOB_NODELIST": "gpu[01-02]", "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        },
        ("Open MPI", 2, 1, 1, 0, "gpu01", 29500),
    ),
    "mpirun --map-by node, which deals the ranks out": (
        {
            "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "a",
        },
        ("Open MPI", 2, 1, 1, 0, "a", 29500),
    ),
    "mpiexec of Intel MPI within Slurm": (
        {
            "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2", "PMI_RANK": "4", "PMI_SIZE": "8",
            "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4",
        },
        ("MPICH", 2, 1, 4, 0, "n1", 29500),
    ),
    "MVAPICH": (
        {
            "MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_LOCAL_RANK": "0",
            "MV2_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "h1",
        },
        ("MVAPICH", 2, 1, 2, 0, "h1", 29500),
    ),
    "mpiexec of PALS": (
        {
            "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4", "PALS_RANKID": "5",
            "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1", "PALS_APID": "x", "MASTER_ADDR": "x3001",
        },
        ("PALS", 2, 1, 5, 1, "x3001", 29500),
    ),
    "Flux": (
        {
            "FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "1",
            "FLUX_JOB_ID": "f", "MASTER_ADDR": "t1",
        },
        ("Flux", 2, 1, 3, 1, "t1", 29500),
    ),
    "Vertex AI": (
        {"CLUSTER_SPEC": "{}", "MASTER_ADDR": "pool0-0", "MASTER_PORT": "2222", "RANK": "1", "WORLD_SIZE": "2"},
        ("Vertex AI", 2, 1, 1, None, "pool0-0", 2222),
    ),
    "SkyPilot": (
        {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.1.0.10\n10.1.0.11", "SKYPILOT_NUM_NODES": "2"},
        ("SkyPilot", 2, 1, None, None, "10.1.0.10", 29500),
    ),
    "dstack": (
        {"DSTACK_NODES_NUM": "2", "DSTACK_NODE_RANK": "1", "DSTACK_MASTER_NODE_IP": "10.1.0.1"},
        ("dstack", 2, 1, None, None, "10.1.0.1", 29500),
    ),
    "Volcengine": (
        {
            "MLP_WORKER_NUM": "2", "MLP_ROLE_INDEX": "1", "MLP_WORKER_0_HOST": "10.1.0.1", "MLP_WORKER_0_PORT": "2222",
        },
        ("Volcengine", 2, 1, None, None, "10.1.0.1", 2222),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_each_launcher_is_read_by_the_variables_that_it_sets(name: str) -> None:
    """Which host of how many, which rank, and where the master is."""
    environ, expected = LAUNCHES[name]
    launch = read_launch(environ)

    assert launch.several
    assert (
        launch.launcher, launch.nodes, launch.node, launch.rank, launch.local_rank, launch.master, launch.port
    ) == expected  # fmt: skip


@pytest.mark.parametrize(
    "environ",
    [
        {}, {"NNODES": "1", "NODE_RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {"SLURM_NNODES": "2", "SLURM_PROCID": "0"},
        {**TORCHRUN, "GROUP_WORLD_SIZE": "1"},
        {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1"},
        {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.1.0.10", "SKYPILOT_NUM_NODES": "1"},
    ],
)  # fmt: skip
def test_a_launch_that_does_not_say_several_hosts_is_none(environ: dict[str, str]) -> None:
    """Nothing listens beyond loopback then, and nobody is waited for: not in the script of a batch job either."""
    assert not read_launch(environ).several


COMMANDS = {
    "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=a:29511 --rdzv_id 7 train.py": (2, None, "a", 29511, "7"),
    "torchrun --nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint=a t.py": (2, None, "a", 29400, ""),
    "torchrun --nnodes=2 --nproc_per_node 8 --node_rank=1 --master_addr=10.0.0.1 t.py --master_addr=x": (
        2, 1, "10.0.0.1", 29500, "",
    ),
    "python -u -m torch.distributed.run --nnodes=3 --node-rank 2 --rdzv_endpoint=[fd00::1]:1234 -m pkg.train": (
        3, 2, "fd00::1", 1234, "",
    ),
    "accelerate launch --num_machines 2 --machine_rank 1 --main_process_ip a --main_process_port 3000 t.py": (
        2, 1, "a", 3000, "",
    ),
    "torchrun --standalone --nproc_per_node=2 train.py": None,
    "torchrun --nnodes=2 --rdzv_backend=etcd-v2 --rdzv_endpoint=e:2379 train.py": None,
    "python train.py --nnodes=2": None,
    "": None,
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tells_where_its_hosts_meet(command: str) -> None:
    """By the launcher's own options, in both spellings; options of the script are none of it."""
    launch = launch_of(command.split())
    told = launch and (launch.nodes, launch.node, launch.master, launch.port, launch.rdzv_id)

    assert told == COMMANDS[command]


def test_a_command_that_a_step_starts_says_where_its_hosts_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them this is, and the job's token, the step says: torchrun's c10d gives no numbers."""
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    command = ("torchrun", "--nnodes=4", "--rdzv_backend=c10d", "--rdzv_endpoint=a:29511", "--rdzv_id=7", "train.py")
    launch = launch_of_several(None, command)

    assert launch is not None
    assert (launch.nodes, launch.node, launch.master, launch.port, launch.rdzv_id) == (4, 3, "a", 29511, "7")
    assert launch.job == "17 0"


@pytest.mark.parametrize(("tasks", "nodes", "refused"), [("8", "4", True), ("8", "8", False), ("4", "4", False)])
def test_a_torchrun_in_each_of_several_tasks_of_a_host_is_refused(
    tasks: str, nodes: str, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    """There would be more torchruns than nodes; where each task is a node of its own, there are not."""
    for name, value in {**SLURM, "SLURM_STEP_NUM_TASKS": tasks}.items():
        monkeypatch.setenv(name, value)
    command = ("torchrun", f"--nnodes={nodes}", "--rdzv_backend=c10d", "--rdzv_endpoint=a:29511", "train.py")
    expected = pytest.raises(BadTarget, match="8 processes on 4 hosts") if refused else nullcontext()

    with expected:
        assert launch_of_several(None, command) is not None


def test_ranks_numbered_by_hand_without_a_number_of_hosts() -> None:
    """Where they meet at this host itself, or a launcher tells how many are here, nothing is missing."""
    by_hand = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}
    assert "NNODES=2 NODE_RANK=0 ddpdoctor check" in uncounted(by_hand)
    here = {"MASTER_ADDR": "localhost"}, {"MASTER_ADDR": "127.0.0.1"}
    assert {uncounted(by_hand | more) for more in (*here, {"LOCAL_WORLD_SIZE": "2"}, {"WORLD_SIZE": "1"})} == {""}


def test_the_ranks_of_a_command_are_told_what_its_options_say() -> None:
    """So that checks of the environment see several hosts before any rank is there."""
    launch = launch_of(
        ("torchrun", "--nnodes=2", "--node_rank=1", "--master_addr=a", "--master_port=31000", "train.py")
    )
    assert launch is not None

    environ = told_by(launch)

    assert environ == {"MASTER_ADDR": "a", "MASTER_PORT": "31000", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    assert several_hosts(environ)


@given(st.dictionaries(st.sampled_from(sorted({s for each in LAUNCHERS for s in each.signs})), st.text(max_size=12)))
def test_no_environment_breaks_the_reading(environ: dict[str, str]) -> None:
    """Whatever stands in the variables."""
    assert isinstance(read_launch(environ), Launch)


def test_what_differs_between_ranks_is_no_token() -> None:
    """MPICH tells each rank a PMI_ID of its own where its ranks connect by a port."""
    told = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0", "MASTER_ADDR": "a"}
    jobs = {read_launch({**told, "PMI_RANK": rank, "PMI_ID": rank}).job for rank in ("0", "1")}

    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("nodes", "first"), [("gpu[003-005,9],login", "gpu003"), ("a,b", "a"), ("n[1]-ib,x", "n1-ib"), ("", "")]
)
def test_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    """As `scontrol show hostnames` would print it."""
    assert first_host(nodes) == first


def cluster(count: int, bad: dict[tuple[int, int], str]) -> Cluster:
    """Return hosts that reach each other but for some."""
    hosts = tuple(Host(f"h{each}", node=each, gloo=f"10.0.0.{each + 1}") for each in range(count))
    links = tuple(
        Link(source, target, "gloo", hosts[target].gloo, bad.get((source, target), OK))
        for source in range(count)
        for target in range(count)
        if source != target
    )
    return Cluster(hosts, count, links=links)


@given(st.integers(2, 6), st.data())
def test_each_bad_link_is_explained_once_and_no_good_one(count: int, data: st.DataObject) -> None:
    """Whatever is lost, on whatever links."""
    pairs = [(source, target) for source in range(count) for target in range(count) if source != target]
    states = st.sampled_from([OK, "silent", "refused", LARGE_LOST])
    bad = {pair: data.draw(states) for pair in pairs}
    seen = cluster(count, bad)
    explained = [link for suspect in suspects(seen) for link in suspect.links]

    assert len(explained) == len(set(explained))
    assert {(link.source, link.target) for link in explained} == {pair for pair in pairs if bad[pair] != OK}


@pytest.mark.parametrize(
    ("bad", "fault", "host"),
    [
        ({(0, 1), (2, 1), (3, 1)}, Fault.INBOUND, 1), ({(1, 0), (1, 2), (1, 3)}, Fault.OUTBOUND, 1),
        ({(0, 1), (2, 1), (3, 1), (1, 0), (1, 2), (1, 3)}, Fault.CLOSED, 1), ({(1, 2), (2, 1)}, Fault.LINK, None),
        ({(1, 2)}, Fault.ONE_WAY, None),
    ],
)  # fmt: skip
def test_one_fault_is_told_as_one(bad: set[tuple[int, int]], fault: Fault, host: int | None) -> None:
    """Of four hosts: a column, a row, both, a cell and its mirror, a cell."""
    (suspect,) = suspects(cluster(4, dict.fromkeys(bad, "silent")))

    assert (suspect.fault, suspect.host) == (fault, host)


@pytest.mark.parametrize("count", [2, 3, FULL, FULL + 1, 4096])
def test_who_tries_whom(count: int) -> None:
    """Each host tries some others and is tried by as many; each other one, as long as they are some hundreds."""
    tried = {here: targets(here, count) for here in range(count)}

    assert all(here not in each and len(each) == len(set(each)) for here, each in tried.items())
    assert {len(each) for each in tried.values()} == {count - 1 if count <= FULL else (count - 1).bit_length()}
    assert links(count) == sum(map(len, tried.values()))
    assert sources(1, count) == {here for here, each in tried.items() if 1 in each}


@pytest.mark.parametrize("closed", [0, 7, 999])
def test_a_bad_host_of_a_thousand_is_named(closed: int) -> None:
    """By the ten that try it; the matrix shows these alone."""
    hosts = tuple(Host(f"h{each}", node=each, gloo=f"10.0.{each // 250}.{each % 250}") for each in range(1000))
    seen = Cluster(
        hosts,
        1000,
        links=tuple(
            Link(source, target, "gloo", hosts[target].gloo, "silent" if target == closed else OK)
            for source in range(1000)
            for target in targets(source, 1000)
        ),
    )
    (suspect,) = suspects(seen)
    lines = list(hosts_text(summary(seen), PLAIN))

    assert (suspect.fault, suspect.host, len(suspect.links)) == (Fault.INBOUND, closed, 10)
    assert lines[0] == "1000 of 1000 hosts met."
    assert lines[1].startswith("10,000 of 999,000 links between them were tried")
    assert len(summary(seen).matrix.rows) == 11
    assert Meeting(seen, 0).clean is False


def test_what_a_host_is_told_of_those_that_it_does_not_try() -> None:
    """Who they are: of thousands, all they say would not go into a line."""
    told = tuple(Host(f"h{each}", node=each, gloo="10.0.0.1", master="a" * 300) for each in range(4096))
    letter = Roster.of(told, ("10.0.0.1",) * 4096).letter(5)
    said = json.loads(letter)
    hosts = [host_from(each) for each in said["roster"]]

    assert [each.node for each in hosts] == list(range(4096))
    assert {each for each, host in enumerate(hosts) if host.gloo} == {5, *targets(5, 4096)}
    assert len(letter) < LONGEST / 2
    assert json.loads(Roster.of(told[:3], ("", "b", "c")).letter(1)) == {
        "roster": [as_data(each) for each in told[:3]], "came": ["", "b", "c"], "seat": 1
    }  # fmt: skip


@given(st.integers(2, 9), st.data())
def test_hosts_that_are_shown_as_one_are_alike(count: int, data: st.DataObject) -> None:
    """Each cell of the whole matrix can be read off the short one."""
    states = st.sampled_from(["ok", "ok", "ok", "silent"])
    cells = [["-" if row == column else data.draw(states) for column in range(count)] for row in range(count)]
    groups = alike(cells)

    assert sorted(number for group in groups for number in group) == list(range(count))
    for group in groups:
        for column in groups:
            assert len({cells[row][each] for row in group for each in column if row != each}) <= 1


def test_a_large_cluster_with_one_closed_host_takes_two_lines() -> None:
    """Of a hundred hosts."""
    cells = [["-" if r == c else "silent" if c == 7 else "ok" for c in range(100)] for r in range(100)]
    names = tuple(f"host {each}" for each in range(100))
    table = Table(("", *names), tuple((name, *row) for name, row in zip(names, cells, strict=True)))
    lines = list(hosts_text(Hosts(names, 100, met=True, matrix=table), PLAIN))

    assert lines[0] == "100 of 100 hosts met."
    assert lines[3].split() == ["from", "host", "0", "and", "98", "more", "ok", "silent"]
    assert len(lines) == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
NAMES = st.sampled_from(list(as_data(Host("a"))))


@given(st.dictionaries(NAMES, JSON, max_size=6) | JSON)
def test_what_a_peer_says_is_a_host_or_refused(data: object) -> None:
    """Of the right types and sizes; nothing else gets through."""
    with suppress(ProtocolError):
        host = host_from(data)

        assert all(isinstance(text, str) for text in (host.name, host.gloo, host.master))
        assert host.node is None or type(host.node) is int
        assert host_from(json.loads(json.dumps(as_data(host)))) == host


@given(JSON)
@example([{"source": 0, "target": 0, "use": "", "address": "", "state": "", "mtu": 1, "other": "", "other_state": ""}])
def test_what_a_peer_says_is_a_row_or_refused(data: object) -> None:
    """A link leads from the host that says it to another one."""
    with suppress(ProtocolError):
        assert all(link.source == 0 and 0 < link.target < 3 for link in row_from(data, 0, 3))


def test_a_row_is_read_as_it_was_said() -> None:
    """Through JSON and back."""
    links = tuple(link for link in cluster(3, {(0, 1): LARGE_LOST}).links if link.source == 0)

    assert row_from(json.loads(json.dumps(row_data(links))), 0, 3) == links


@given(JSON)
def test_findings_of_others_are_findings_or_refused(data: object) -> None:
    """A report that is none is not shown."""
    with suppress(ProtocolError):
        assert with_reported((), {"b": data}, "a") == ()


def test_a_finding_of_another_host_comes_with_its_place_and_the_causes_that_remain() -> None:
    """Through JSON and back: message, evidence, file and line, fix, and what tells the causes apart."""
    finding = Finding(
        "two causes remain",
        (Evidence("this", "that", "here"),),
        Fix("mend it", command="true", diff="-a\n+b"),
        Place(file="train.py", line=3, variable="MASTER_ADDR"),
        Severity.ERROR,
        ambiguity=Ambiguity(("the first", "the second"), "ddpdoctor check"),
    )
    result = Result("DDP301", "a-fault", "network", "A fault", Status.FAILED, (finding,))
    empty = replace(result, status=Status.PASSED, findings=())

    (told,) = with_reported((empty,), {"b": json.loads(json.dumps(findings_data([result])))}, "a")

    there = replace(finding, place=replace(finding.place, host="b"), fix=replace(finding.fix, command="true   # on b"))
    assert told.findings == (there,)


def test_what_is_the_same_on_several_hosts_is_said_once() -> None:
    """Of all of them, with commands that say where; another value, or another host's again, stands for itself."""
    own = Finding("too small", (Evidence("1 MiB", "more", "here"),), Fix("enlarge it", command="mount"), Place())
    own = replace(own, severity=Severity.WARNING)
    result = Result("DDP151", "shm-too-small", "host", "", Status.FAILED, (own,))
    other = replace(result, findings=(replace(own, message="still smaller"),))
    reported = {"b": findings_data([result]), "c": findings_data([other]), "d": findings_data([result])}

    (told,) = with_reported((result,), reported, "a")

    assert [(each.message, each.place.host, each.fix.command) for each in told.findings] == [
        ("too small", "a, b, d", "mount   # on a, b, d"),
        ("still smaller", "c", "mount   # on c"),
    ]
    assert with_reported((told,), {"b": findings_data([result])}, "a") == (told,)


def test_what_a_host_says_of_itself_names_it_in_the_report_of_another_one() -> None:
    """There "this host" would be the one that reports; of several it stays, and the place says who they are."""
    own = Finding("no name of this host", (Evidence("this host's", "a name"),), Fix("name this host"), Place())
    own = replace(own, severity=Severity.ERROR, ambiguity=Ambiguity(("this host is new",), "hostname"))
    result = Result("DDP301", "hostname-loopback", "network", "", Status.PASSED, ())
    said = findings_data([replace(result, findings=(own,))])

    ((told,), (both,)) = (
        with_reported((result,), dict.fromkeys(hosts, said), "a")[0].findings for hosts in ("b", "bc")
    )
    assert told.ambiguity is not None
    assert (told.message, told.evidence[0].seen, told.fix.summary, told.ambiguity.causes) == (
        "no name of b", "b's", "name b", ("b is new",)
    )  # fmt: skip
    assert (both.message, both.place.host) == ("no name of this host", "b, c")


def test_an_effect_of_what_is_found_of_a_host_is_left_out_there_alone() -> None:
    """Two hosts of number 0: that the second one does not own the master's address says nothing more."""
    cause, effect = (find_check(load_checks(), code) for code in ("DDP366", "DDP356"))
    assert cause is not None
    assert effect is not None

    def of(check: Check, *hosts: str) -> Result:
        findings = tuple(
            Finding("wrong", (Evidence("this"),), Fix("mend it"), Place(host=host), Severity.ERROR) for host in hosts
        )
        status = Status.FAILED if hosts else Status.PASSED
        return Result(check.code, check.slug, check.area, "", status, findings)

    both = without_effects({effect: of(effect, "b"), cause: of(cause, "b")}, "a")
    another = without_effects({effect: of(effect, "b", "c"), cause: of(cause, "b")}, "a")
    alone = {effect: of(effect, "b"), cause: of(cause)}

    assert (both[effect].status, both[effect].findings, both[cause]) == (Status.PASSED, (), of(cause, "b"))
    assert another[effect] == of(effect, "c")
    assert without_effects(alone, "a") == alone


@functools.cache
def this_host() -> Facts:
    """Return the facts of this host, gathered once."""
    return gather({})


@given(JSON)
def test_a_report_that_is_none_ends_no_other(data: object) -> None:
    """The host where all meet says who sent it, and keeps what the others found."""
    hosts = (Host("a"), Host("b"), Host("c"))
    result = Result("DDP301", "hostname-loopback", "network", "", Status.PASSED)
    said = {
        "code": "DDP301", "message": "m", "severity": "error", "variable": "",
        "evidence": [["seen", "right", "there"]], "fix": ["f", "", ""],
    }  # fmt: skip
    launch = Launch()
    opening = Opening(launch, (), 0.0, lambda: Jobs(2, {}, 0.0), joint=False)
    session = Session(Meeting(Cluster(hosts, 3), 0), launch, this_host(), opening)
    (found,), broken = session.added((result,), {1: [{"code": 7}], 2: [said]})
    session.added((result,), {1: data})

    assert [each.place.host for each in found.findings] == ["c"]
    assert len(broken) == 1
    assert broken[0].startswith(hosts[1].place)


def test_a_check_that_lost_the_one_that_reports_is_not_whole() -> None:
    """It has compared nothing and knows of its own links alone, so that it must not say that all is well."""
    launch, shown = Launch(master="10.0.0.1"), Show("text", os.devnull, Severity.WARNING, verbose=False, quiet=True)
    opening = Opening(launch, (), 0.0, lambda: Jobs(2, {}, 0.0), joint=False)
    passed = Report((Result("DDP301", "hostname-loopback", "network", "", Status.PASSED),), (), 1.0)
    ours, theirs = socket.socketpair()
    theirs.close()
    with Client(ours, *seals(b"token", b"1" * 32, b"2" * 32), 0.0) as client:
        meeting = Meeting(Cluster((Host("a"), Host("b")), 2), 1, None, client)
        told = Session(meeting, launch, this_host(), opening).end(passed, shown, 0.0)

    assert told is not None
    assert "10.0.0.1: the check that reports for all hosts has ended" in told.faults[0]
    assert told.exit_status(Severity.WARNING) == 2


@pytest.mark.parametrize("there", [(True, True), (True, False), (False, True)])
def test_jobs_begin_where_all_hosts_have_started_what_runs_them(there: tuple[bool, bool]) -> None:
    """One that has no torch, or takes too long to import it, is not waited for in a collective."""
    hosts = (Host("a"), Host("b"))
    links = tuple(Link(source, 1 - source, "gloo", "10.0.0.1", OK) for source in (0, 1))
    ran = []
    with Server(0, b"token") as server, ThreadPoolExecutor(1) as other:

        def comes() -> None:
            client, _ = find(lambda: ("127.0.0.1",), (server.port,), b"token", time.monotonic() + 5, lambda _: False)
            assert client is not None
            with client:
                client.tell("hello")
                meeting = Meeting(Cluster(hosts, 2, links=links), 1, None, client)
                meeting.warm_up(lambda: there[1], 5, wanted=True)
                meeting.run_joint("joint", lambda *_: ("", ""), lambda: 1, 5)

        coming = other.submit(comes)
        guests = server.collect("hello", lambda have: len(have) == 1, time.monotonic() + 5)
        meeting = Meeting(Cluster(hosts, 2, links=links), 0, server, None, {1: guests[0]})
        meeting.warm_up(lambda: there[0], 5, wanted=True)

        def run(*_: int) -> tuple[str, str]:
            ran.append(1)
            return "", ""

        meeting.run_joint("joint", run, lambda: 1, 5)
        coming.result(10)

    assert len(ran) == all(there)
    assert meeting.sound


def test_a_host_that_comes_when_all_are_there_is_told_so() -> None:
    """It hears who is there, and takes part in nothing; the others go on, and their server knows who came."""
    first, second = Host("a", node=0, nodes=2), Host("b", node=1, nodes=2)
    with Server(0, b"token") as server, ThreadPoolExecutor(2) as others:
        server.full = Roster.of((first, second), ("", "127.0.0.1")).full()
        coming = others.submit(_join, server.port, b"token", "c")
        assert _served(server) == ["c"]
        client, _ = coming.result(10)
        assert client is not None
        with client:
            told = client.hear(time.monotonic() + 5)
        (guest,) = server.guests
        late = host_from(guest.said["hello"]["host"])

    assert [host_from(each).node for each in told["full"]] == [0, 1]
    assert late.name == "c"


A, B, C = (Host(name, node=node, nodes=2, by="NNODES") for name, node in (("a", 0), ("b", 1), ("c", 1)))
CAME_LATE = {
    "where all meet": Cluster((A, B), 2, late=(C,)),
    "on the one that came late": Cluster((C,), 2, met=False, late=(A, B)),
}


@pytest.mark.parametrize("name", CAME_LATE)
def test_a_number_that_was_taken_before_is_named(name: str) -> None:
    """Of two launches that have one master, say: all numbers are taken, and one host is too many."""
    told = [each.message for each in node_rank_taken_twice.at_the_meeting.examine(cluster=CAME_LATE[name])]

    assert len(told) == 1
    assert "are both node rank 1, and all 2 numbers are taken" in told[0]
    assert not list(world_sizes_differ.at_the_meeting.examine(cluster=CAME_LATE[name]))


def test_hosts_that_count_from_one() -> None:
    """None is too many, and nobody is the first."""
    hosts = tuple(Host(name, node=node, nodes=3) for name, node in (("a", 1), ("b", 2), ("c", 3)))
    (finding,) = world_sizes_differ.at_the_meeting.examine(cluster=Cluster(hosts, 3))

    assert finding.message == "c has node rank 3, and 3 hosts count from 0 to 2: nobody is 0"
    assert finding.fix.command.startswith("export NODE_RANK=$((NODE_RANK - 1))")


@pytest.mark.parametrize(
    ("change", "names"),
    [({}, True), ({"node": 0}, False), ({"launcher": "torchrun"}, False), ({"master_at": "10.0.0.1"}, False)],
)
def test_a_host_that_waits_for_others_at_its_own_address(change: dict[str, Any], *, names: bool) -> None:
    """A script that takes $(hostname -i) gives each host its own; host 0 does so rightly, and torchrun's can."""
    host = Host(
        "b", "by hand", node=1, nodes=2, master="10.0.0.2", master_at="10.0.0.2", addresses={"10.0.0.2": "eth0"}
    )
    seen = Cluster((replace(host, **change),), 2)

    (finding,) = hosts_missing.at_the_meeting.examine(cluster=seen)
    assert ("that is host 1 (b) itself, and rank 0 is on host 0" in finding.message) is names


def test_this_host_is_no_peer_of_its_own() -> None:
    """What goes to its own addresses passes no interface, and an interface that is down says nothing of it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert "127.0.0.1" not in {each.peer for each in peers([os.getpid()])}


@given(st.binary(max_size=400), st.lists(st.integers(1, 40), max_size=10))
def test_lines_are_cut_alike_however_they_come(data: bytes, cuts: list[int]) -> None:
    """In one packet or in many."""
    lines, rest, came = Lines(), data, []
    for cut in cuts:
        came += lines.feed(rest[:cut])
        rest = rest[cut:]
    came += lines.feed(rest)

    assert came == data.split(b"\n")[:-1]


@given(st.integers(0, 200), st.integers(1, 255))
@example(64, 1)  # the blank behind the code
def test_a_line_that_was_changed_is_refused(place: int, change: int) -> None:
    """So are one that is said twice, and one that goes back to whoever said it."""
    ours, theirs = seals(b"token", b"1" * 32, b"2" * 32)
    line = ours.close({"stage": "hello"}).rstrip()
    changed = bytearray(line)
    changed[place % len(line)] ^= change

    def reader() -> Seal:
        return seals(b"token", b"1" * 32, b"2" * 32)[0]

    with pytest.raises(ProtocolError):
        reader().open(bytes(changed))
    with pytest.raises(ProtocolError):
        theirs.open(line)
    honest = reader()
    assert honest.open(line) == {"stage": "hello"}
    with pytest.raises(ProtocolError):
        honest.open(line)


def _served(server: Server, seconds: float = 10) -> list[str]:
    """Collect until one host has come; return the names of those that did."""
    came = server.collect("hello", lambda have: len(have) >= 1, time.monotonic() + seconds)
    return [guest.said["hello"]["host"]["name"] for guest in came]


def _join(port: int, token: bytes, name: str = "b") -> tuple[Client | None, str]:
    client, tries = find(lambda: ("127.0.0.1",), (port,), token, time.monotonic() + 5, lambda _: False)
    if client is None:
        return None, tries[0].ended
    client.tell("hello", host=as_data(Host(name)), skew=client.skew)
    return client, ""


@contextmanager
def coming(port: int) -> Iterator[None]:
    """Let a host come to a port meanwhile."""
    clients: list[Client | None] = []
    thread = threading.Thread(target=lambda: clients.append(_join(port, b"token")[0]))
    thread.start()
    yield
    thread.join()
    for client in clients:
        assert client is not None
        with client:
            pass


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=4))
def test_a_babbling_stranger_does_not_keep_a_host_away(chunks: list[bytes]) -> None:
    """Whatever it sends; it is dropped, and the host that comes after it is heard."""
    with Server(0, b"token") as server, socket.create_connection(("127.0.0.1", server.port)) as stranger:
        with suppress(OSError):
            for chunk in chunks:
                stranger.sendall(chunk)

        with coming(server.port):
            assert _served(server) == ["b"]


def test_many_strangers_that_say_nothing_do_not_fill_it() -> None:
    """The oldest of them makes room."""
    with Server(0, b"token") as server:
        strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(STRANGERS + 10)]
        with coming(server.port):
            assert _served(server) == ["b"]
        assert len(server.guests) <= STRANGERS + 1
        for each in strangers:
            each.close()


def test_a_line_without_end_is_cut_off() -> None:
    """At the first that is longer than a nonce; nothing of it is kept."""
    with Server(0, b"token") as server, socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(b"x" * 100_000)
        server.collect("hello", lambda _: bool(server.strangers), time.monotonic() + 10)

        assert [each.what for each in server.strangers] == ["a line is longer than 64 bytes"]


def test_another_token_is_told_to_both_sides() -> None:
    """The one that came learns that it is of another job, and the server who came."""
    with Server(0, b"token") as server:
        said: list[str] = []

        def come() -> None:
            client, _ = _join(server.port, b"other")
            assert client is not None
            with client, suppress(PermissionError):
                client.hear(time.monotonic() + 5)
                return
            said.append(OTHER_JOB)

        thread = threading.Thread(target=come)
        thread.start()
        server.collect("hello", lambda _: bool(server.strangers), time.monotonic() + 10)
        thread.join()

        assert [each.what for each in server.strangers] == ["a line with a wrong code"]
        assert said == [OTHER_JOB]


def test_a_listener_that_nobody_reads_answers() -> None:
    """The kernel acknowledges, whatever its process does; a closed one refuses."""
    with listening(0) as data:
        port = data.getsockname()[1]
        assert probe("127.0.0.1", port).state == OK
    assert probe("127.0.0.1", port).state == "refused"


@pytest.mark.parametrize(("lost", "state"), [(1, OK), (2, LARGE_LOST)])
def test_a_pause_is_no_limit_of_size(monkeypatch: pytest.MonkeyPatch, lost: int, state: str) -> None:
    """What is too large never passes: the largest segments are sent once more before their size is blamed."""
    tries: list[int | None] = []

    def passes(_: str, __: int, ___: int, segment: int | None) -> Answer:
        tries.append(segment)
        return Answer("data lost" if segment is None and tries.count(None) <= lost else OK)

    monkeypatch.setattr(probing, "_passes", passes)
    monkeypatch.setattr(probing, "_sent_again", lambda *_: 0)

    assert probe("127.0.0.1", 1).state == state


def test_nothing_listens_beyond_loopback_on_one_host() -> None:
    """A check without a launch of several hosts opens no port: seen in the kernel's list while it runs."""
    code = (
        "import socket\n"
        "listen = socket.socket.listen\n"
        "def told(sock, *args):\n"
        "    if sock.family in (socket.AF_INET, socket.AF_INET6): print('LISTENS', sock.getsockname())\n"
        "    return listen(sock, *args)\n"
        "socket.socket.listen = told\n"
        "import sys; sys.argv = ['ddpdoctor', 'check', '--only', 'rendezvous,hosts-missing']\n"
        "from ddpdoctor.__main__ import main; main()\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "NNODES", "SLURM"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)

    assert "ran, in" in done.stdout, done.stderr
    assert "LISTENS" not in done.stdout
