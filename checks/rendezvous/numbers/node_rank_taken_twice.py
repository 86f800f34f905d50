"""Two hosts have the same node rank, or the same rank.

## What happens

A launch script was copied to the second host and its `--node_rank` or RANK was not changed. Two ranks 0 both open a
store, or wait for each other; two ranks 1 leave nobody to be the other one. torch says nothing, for more than
25 minutes with torch 2.13.

## How to be sure

`ddpdoctor check` on all hosts: both come to the master and say the same number. Where no host is number 0 nobody opens
the master's port; then the check prints a line `ddpdoctor-host:` on each host, and `ddpdoctor explain LOG LOG` compares
them.

In a file (`ddpdoctor lint`): srun or mpirun start the same command on several nodes, and its `--node_rank` or
`--machine_rank` is a plain number; two services of docker compose have the same one;
or the pods of an indexed Job of Kubernetes, and the nodes of a job of SkyPilot or dstack, are all told one.

## How to mend it

Give each host its own number, from 0: `--node_rank=1` (or NODE_RANK, RANK) on the second one.

## Versions and sources

Holds for all versions. Measured with torch 2.13 between network namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOST_LINE,
    RANKS_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Host,
    Log,
    Place,
    Record,
    Severity,
    joining_from,
    lint,
    log_pattern,
    probe,
    tasks_of,
)

from ..._hosts.cluster import hosts_to_compare
from ...launching._launchers import nodes
from ..missing._of_hosts import CAME

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Launch, LaunchScript

AILMENT = Ailment("DDP366", Severity.ERROR, supersedes=("master-addr-of-other-host",))


@probe
def at_the_meeting(cluster: Cluster) -> Iterator[Finding]:
    """Look for numbers that two hosts have."""
    yield from _twice((*cluster.hosts, *cluster.late), cluster.expected)


@log_pattern(HOST_LINE)
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lines of hosts that did not meet."""
    if hosts := hosts_to_compare(record, log):
        yield from _twice(hosts, hosts[0].nodes or len(hosts))


@log_pattern(RANKS_LINE, context=(CAME,))
def as_ranks_waited(record: Record, log: Log) -> Iterator[Finding]:
    """Compare which ranks wait in init_process_group on each host, as the watch there has told it."""
    told = list(log.find(RANKS_LINE))
    if told[0][0] is not record or log.first(CAME):
        return
    hosts = joining_from(match[1] for _, match in told)
    world = {size for size, _ in hosts.values()}
    by_rank: dict[int, list[str]] = {}
    for host, (_, ranks) in hosts.items():
        for rank in ranks:
            by_rank.setdefault(rank, []).append(host)
    if len(world) > 1 or not (taken := [rank for rank, names in by_rank.items() if len(names) > 1]):
        return
    rank, size = min(taken), world.pop()
    names = " and ".join(sorted(by_rank[rank]))
    free = next((each for each in range(size) if each not in by_rank), None)
    yield Finding(
        f"{names} both have a rank {rank} of {size} in init_process_group"
        + (f", and nobody is {free}" if free is not None else ""),
        tuple(
            Evidence(
                f"{host}: rank {', '.join(map(str, ranks))} of {size} waits", "ranks of its own", "ddpdoctor-ranks"
            )
            for host, (_, ranks) in hosts.items()
        ),
        Fix(
            "take the rank from what the launcher sets for each process (RANK of torchrun, SLURM_PROCID, "
            "OMPI_COMM_WORLD_RANK), or give each host its own number",
            command="grep -rnE 'RANK|rank=' --include=*.py --include=*.sh .   # what is the same on all hosts",
        ),
        Place(variable="RANK", rank=rank),
    )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a number that the agents of several nodes are all given."""
    numbered = [(each, word) for each in launch.launches if (word := _number(launch, each)) is not None]
    for each, number in numbered:
        tasks, wanted = tasks_of(launch, each), nodes(launch, each)
        if tasks is not None and (tasks.total or 1) > 1 and tasks.total == wanted:
            said = f"{tasks.by or each.scheduler} starts {tasks.total} nodes, and each is told"
            yield _of_all(launch, each, number, said, "$SLURM_NODEID" if each.scheduler == "srun" else tasks.number)
    services = {id(one.node): (each, number) for each, number in numbered for one in launch.containers
                if each.is_of(one.commands)}  # fmt: skip
    is_compose = bool(launch.documents) and launch.documents[0].get("services") is not None
    if not services or len(services) < len(numbered) or not is_compose:
        return
    (first, taken), *others = services.values()
    for each, number in others:
        if number == taken and _meets(launch, first) == _meets(launch, each) is not None:
            yield _of_all(launch, each, number, "two services are nodes of one training, and both are told")
            return


def _number(launch: LaunchScript, each: Launch) -> str | None:
    """Return the number of a node that a launcher of several is told; None where none, or the rendezvous gives it."""
    several = (nodes(launch, each) or 1) > 1 and launch.value(each.options.get("rdzv-backend")) in {None, "static"}
    text = launch.value(each.options.get("node-rank") or each.options.get("machine-rank"))
    return text if several and text is not None and text.isdecimal() else None


def _meets(launch: LaunchScript, each: Launch) -> tuple[str | None, ...] | None:
    """Return where the nodes of a launcher meet, if that is certain."""
    names = ("master-addr", "master-port", "main-process-ip", "main-process-port", "rdzv-endpoint")
    said = tuple(launch.value(each.options.get(name)) for name in names)
    return said if any(said) else None


def _of_all(launch: LaunchScript, each: Launch, number: str, said: str, own: str = "") -> Finding:
    """Return a finding of all nodes; ``own`` is the variable in which each has its own number."""
    option = "machine_rank" if each.tool == "accelerate launch" else "node_rank"
    command = f"{each.tool} --{option}={own} ..."
    return Finding(
        f"{said} --{option}={number}: both open a store or wait for each other",
        (launch.seen(each.line, f"--{option} from 0 to {(nodes(launch, each) or 2) - 1}, one for each node"),),
        Fix(
            "let each expand its own number" if own else "give each node its own number",
            command=f"srun bash -c '{command}'" if each.scheduler == "srun" else command if own else f"--{option}=1",
        ),
        launch.place(each.line),
    )


def _twice(hosts: tuple[Host, ...], expected: int) -> Iterator[Finding]:
    for name, what in (("node", "node rank"), ("rank", "rank")):
        by_number: dict[int, list[Host]] = {}
        for host in hosts:
            if (number := getattr(host, name)) is not None:
                by_number.setdefault(number, []).append(host)
        taken = sorted((number, same) for number, same in by_number.items() if len(same) > 1)
        for number, same in taken:
            free = next((each for each in range(expected) if each not in by_number), None)
            names = " and ".join(host.name for host in same)
            option = {"node": "NODE_RANK", "rank": "RANK"}[name]
            odd = f"nobody is {free}" if free is not None else f"all {expected} numbers are taken"
            yield Finding(
                f"{names} are both {what} {number}, and {odd}",
                tuple(
                    Evidence(f"{host.name} has {what} {number}", "a number of its own", host.launcher) for host in same
                ),
                Fix(
                    f"give {same[-1].name} another number",
                    command=f"export {option}={free}   # on {same[-1].name}; with torchrun: --node_rank={free}",
                )
                if free is not None
                else Fix(
                    f"count one host more on all of them, and give one of these number {expected}; where {names} are "
                    "of two jobs, give each job a master's port of its own",
                    command=f"export NNODES={expected + 1}   # on all hosts; or export MASTER_PORT=...   # of one job",
                ),
                Place(variable=option, host=same[-1].name),
            )
        if taken:
            return
