"""What ``ddpdoctor run`` wrote on each of several hosts: ``explain`` puts it together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import Run

MISSED = "ddpdoctor: note DDP363 missing-ranks-at-init: ranks {} of 4 did not come to init_process_group; rank"
SILENT = "ddpdoctor: error DDP343 peer-connection-lost: 10.0.0.2 has stopped answering: its kernel acknowledges"
DOWN = "ddpdoctor: error DDP343 peer-connection-lost: eth0, the interface of this host at 10.0.0.2, is down: 10.0.0.1"
SMALL = "ddpdoctor: error DDP343 peer-connection-lost: 10.0.0.2 answers small packets, and acknowledges nothing of"
ABSENT = (
    "ddpdoctor: error DDP343 peer-connection-lost: 10.0.0.2 has stopped answering: no host in the network of eth0 "
    "answers to that address any more (ARP); rank 0 waits in backward at train.py:7"
)
GONE = "ddpdoctor: error DDP343 peer-connection-lost: no interface of this host has 10.0.0.2 any more, the address of"
GOES_ON = 'ddpdoctor-ranks: {"host": "b"}'


def waits(name: str, node: int, **said: object) -> str:
    """Return the line of a host whose torchrun waits for others."""
    host = {
        "name": name, "launcher": "torchrun", "by": "--nnodes=3", "nodes": 3, "node": node, "master": "a",
        "master_at": "10.0.0.1", "port": 29500, "rdzv_backend": "static",
    }  # fmt: skip
    return f"ddpdoctor-host: {json.dumps({'host': host | said, 'tries': []})}"


def explained(ddpdoctor: Run, folder: Path, *lines: str) -> str:
    """Return what is said of the logs of these hosts, each of one line."""
    logs = []
    for host, line in zip("abc", lines, strict=False):
        path = folder / f"{host}.log"
        path.write_text(f"training begins\n{line}\n")
        logs.append(str(path))
    return " ".join(ddpdoctor("explain", *logs).stdout.split())


def test_a_rank_that_no_host_has_is_named(ddpdoctor: Run, tmp_path: Path) -> None:
    """Each host misses the ranks of the other one, too: what both miss was started nowhere."""
    said = explained(ddpdoctor, tmp_path, MISSED.format("2, 3"), MISSED.format("0, 1, 3"))

    assert "rank 3 of 4 did not come to init_process_group on any of the 2 hosts" in said


def test_a_rank_that_came_late_is_no_failure(ddpdoctor: Run, tmp_path: Path) -> None:
    """What the watch says at the end is of a training that all ranks took part in."""
    end = "ddpdoctor: Nothing wrong was found; 1 note. Watched 4 ranks, 12 steps of each. Compared 6 steps, 4"

    assert "DDP363" not in explained(ddpdoctor, tmp_path, f"{MISSED.format('3')}\n{end}")
    assert "DDP363" in explained(ddpdoctor, tmp_path, f"{MISSED.format('3')}\n{end.replace('12', '0')}")


def test_hosts_that_count_differently_are_told(ddpdoctor: Run, tmp_path: Path) -> None:
    """Two processes on one host and one on the other, where each computes the world size from its own number."""
    said = explained(ddpdoctor, tmp_path, MISSED.format("2, 3"), MISSED.replace("of 4", "of 2").format("0"))

    assert "init_process_group is told 2 ranks in one log and 4 in another" in said


def test_hosts_that_wait_for_each_other_alone_miss_nobody(ddpdoctor: Run, tmp_path: Path) -> None:
    """What one host misses, the other one has."""
    assert "DDP363" not in explained(ddpdoctor, tmp_path, MISSED.format("2, 3"), MISSED.format("0, 1"))


def test_ranks_without_torchrun_beside_a_torchrun_that_waits(ddpdoctor: Run, tmp_path: Path) -> None:
    """Unless that host has ranks in init_process_group as well."""
    said = explained(ddpdoctor, tmp_path, waits("a", 0), MISSED.format("0"))
    assert "torchrun on a waits for 3 nodes at a:29500, and has started no rank, while ranks of another host" in said
    assert "start all hosts in one way" in said
    both = explained(ddpdoctor, tmp_path, f"{waits('a', 0)}\n{MISSED.format('1')}", MISSED.format("0"))
    assert "in one way" not in both


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ((waits("a", 0), waits("c", 2)), "2 of 3 nodes wait for the others at a:29500: node 1 did not come"),
        ((waits("a", 0), waits("b", 1, master_at="")), "DDP354 master-unresolvable: a, where torchrun's nodes meet"),
        ((waits("a", 0), waits("b", 1, rdzv_backend="c10d")), "DDP373 rdzv-backends-differ"),
    ],
)
def test_launchers_that_wait(ddpdoctor: Run, tmp_path: Path, hosts: tuple[str, ...], said: str) -> None:
    """For a node that is not there, by a name that one of them does not know, or each in a way of its own."""
    assert said in explained(ddpdoctor, tmp_path, *hosts)


def test_launchers_that_are_all_there_miss_nobody(ddpdoctor: Run, tmp_path: Path) -> None:
    """Each said so before the last one came."""
    hosts = [waits(name, number) for number, name in enumerate("abc")]

    assert "no failure" in explained(ddpdoctor, tmp_path, *hosts)


@pytest.mark.parametrize(
    ("lines", "said", "unsaid"),
    [
        ((SILENT, DOWN), "eth0, the interface with the address 10.0.0.2, went down", "stopped answering in the"),
        ((SILENT, GONE), "a host lost its address 10.0.0.2 in the training", "stopped answering in the"),
        ((SILENT, "step 4"), "the host 10.0.0.2 is down or frozen", "went down"),
        ((SILENT, GOES_ON), "large packets are lost (MTU)", "the host 10.0.0.2 is down or frozen"),
        ((SMALL, "step 4"), "10.0.0.2 answered small packets, and acknowledged nothing", "is down or frozen"),
        (("step 4", "step 4"), "no failure", "DDP343"),
    ],
)
def test_a_host_that_was_cut_off(
    ddpdoctor: Run, tmp_path: Path, lines: tuple[str, ...], said: str, unsaid: str
) -> None:
    """The host at fault knows most; one that goes on is not down."""
    found = explained(ddpdoctor, tmp_path, *lines)

    assert said in found
    assert unsaid not in found


LEAVES = """\
[W1123 21:19:23.400625179 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=3): Failed to recv
W1123 21:19:23.106000 4 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1298] The node 'b_4_0' has failed \
to shutdown the rendezvous '7' due to an error of type RendezvousConnectionError."""
FAILS = f"""{LEAVES}
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode  : 1 (pid: 2762)"""


@pytest.mark.parametrize(("log", "level"), [(LEAVES, "no failure"), (FAILS, "warning DDP725")])
def test_a_torchrun_that_leaves_last_is_no_failure(ddpdoctor: Run, tmp_path: Path, log: str, level: str) -> None:
    """The first host's torchrun, which holds the store, was a moment faster; where a rank failed, it says so."""
    said = explained(ddpdoctor, tmp_path, "epoch 1", log)

    assert ("no failure" in said) is (level == "no failure"), said


def test_the_status_of_a_check_is_that_of_its_findings(ddpdoctor: Run, tmp_path: Path) -> None:
    """Srun tells of it as of any task that fails; a finding of the watch does not explain how a training ended."""
    found = "error DDP366 node-rank-taken-twice: a and b are both node rank 0, and nobody is 1"
    ended = "srun: error: a: task 0: Exited with exit code 1"
    said = explained(ddpdoctor, tmp_path, f"{found}\n{ended}")

    assert "1 finding that ddpdoctor printed there; no other failure error DDP366" in said
    assert "DDP415" in explained(ddpdoctor, tmp_path, f"ddpdoctor: error DDP201 no-sampler: it reads all\n{ended}")


def test_a_hang_that_the_watch_has_told_comes_before_its_interruption(ddpdoctor: Run, tmp_path: Path) -> None:
    """Where the ranks stood when Ctrl-C came is less than why."""
    interrupted = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/train.py", line 9, in <module>\n[rank0]:     loss.backward()\n'
        '[rank0]:   File "/v/lib/python3.11/site-packages/torch/autograd/graph.py", line 979, in _engine_run_backward\n'
        "[rank0]:     return engine.run_backward()\n[rank0]: KeyboardInterrupt"
    )

    assert "DDP726" in explained(ddpdoctor, tmp_path, interrupted)
    said = explained(ddpdoctor, tmp_path, f"{SMALL} what the ranks of this host send\n{interrupted}")
    assert "error DDP343 peer-connection-lost" in said
    assert "DDP726" not in said


LOST = "RuntimeError: Read error [10.0.0.3]:4711: Connection reset by peer. This is typically caused by a remote worker"
ENDED = (
    "W1130 14:08:24.564000 4 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting "
    "down workers\n"
    "W1130 14:08:24.564000 4 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 6 closing signal "
    "SIGTERM"
)


@pytest.mark.parametrize("other", [LOST, "ValueError: label 1000 is not in 0..9"])
def test_a_host_that_was_ended_from_outside_is_told_before_what_the_others_lost(
    ddpdoctor: Run, tmp_path: Path, other: str
) -> None:
    """Unless another host failed of something else than the loss of this one."""
    trace = f'Traceback (most recent call last):\n  File "/home/user/train.py", line 7, in <module>\n    x()\n{other}'
    said = explained(ddpdoctor, tmp_path, trace, ENDED)
    assert ("DDP411 killed-by-scheduler: torchrun received SIGTERM" in said) == (other is LOST), said


def test_a_rank_that_was_killed_on_another_host_is_told_before_what_the_others_lost(
    ddpdoctor: Run, tmp_path: Path
) -> None:
    """By what the watch says of its command; a log that tells of the loss is not that of the host that was lost."""
    trace = f'Traceback (most recent call last):\n  File "/home/user/train.py", line 7, in <module>\n    x()\n{LOST}'
    end = (
        f"ddpdoctor-ranks: {json.dumps({'host': 'b', 'world': 2, 'ranks': [], 'ended': [[1, 9, False]], 'loaded': []})}"
    )
    killed = (
        "ddpdoctor: The command was ended by SIGKILL, by somebody or by the kernel for want of memory. Watched 1 rank"
    )
    said = explained(ddpdoctor, tmp_path, trace, f"{end}\n{killed}")
    assert "DDP157 host-oom-sigkill: the command of `ddpdoctor run` was ended by SIGKILL" in said
    assert said.index("DDP157") < said.index("DDP343")
    assert "breaks off" not in said


def test_an_address_that_nobody_has_any_more_is_no_matter_of_size(ddpdoctor: Run, tmp_path: Path) -> None:
    """Nor of a firewall: what remains is the host, its cable or its address."""
    said = explained(ddpdoctor, tmp_path, ABSENT)
    assert "10.0.0.2 stopped answering in the training: no host answered to that address any more (ARP)" in said
    assert "is down, frozen or asleep; or its cable" in said
    assert "MTU" not in said
