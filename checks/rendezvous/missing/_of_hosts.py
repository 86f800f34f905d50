"""Logs of several hosts whose ranks, or whose launchers, wait for others: who came on none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set as AbstractSet

from ddpdoctor.check import HOST_LINE, Ambiguity, Evidence, Finding, Fix, Host, Log, Record

from ..._hosts.cluster import host_in, hosts_in

TOLD = r"DDP363 missing-ranks-at-init: ranks? (?P<ranks>\d+(?:, \d+)*) of (?P<world>\d+) did not"
"""What the watch says on each host of the ranks that it does not see there."""
CAME = r"Watched \d+ ranks?, [1-9]\d* steps"
"""What the watch says at the end of a training that all ranks of the host came to, if late."""
SHOWN = 8


def came_nowhere(record: Record, log: Log) -> Iterator[Finding]:
    """Yield the ranks that wait on none of the hosts whose logs are here: each host misses those of the others, too."""
    lines = list(log.find(TOLD))
    if not lines or lines[0][0] is not record or log.first(CAME):
        return
    by_log = {(each.source, match["ranks"]): (each, match) for each, match in lines}
    worlds = {match["world"] for _, match in by_log.values()}
    if len(worlds) > 1:
        yield _counted_apart(record, list(by_log.values()))
        return
    missing = set.intersection(*({int(rank) for rank in match["ranks"].split(", ")} for _, match in by_log.values()))
    if not missing:
        return
    sources = {each.source for each, _ in lines}
    if (agent := _agent_elsewhere(log, sources)) is not None:
        yield _beside_an_agent(record, agent, *lines[0])
        return
    listed = ", ".join(map(str, sorted(missing)[:SHOWN])) + (", ..." if missing and len(missing) > SHOWN else "")
    several = len(missing) > 1
    yield Finding(
        f"rank{'s' * several} {listed} of {min(worlds)} did not come to init_process_group"
        + (f" on any of the {len(sources)} hosts whose logs are here" if len(sources) > 1 else ""),
        tuple(each.proof(match, "all ranks come") for each, match in list(by_log.values())[:SHOWN]),
        Fix(
            f"start {'them' if several else 'it'}: one process for each rank of WORLD_SIZE, on all hosts together; or "
            "set WORLD_SIZE to the number of processes that there are",
            command=f"pgrep -af train.py   # on every host: one of them is to have RANK={min(missing)}",
        ),
        record.place,
    )


def _agent_elsewhere(log: Log, sources: AbstractSet[str]) -> Host | None:
    """Return a host whose torchrun waits for other nodes, where no rank of that host is known to have set out."""
    for each, match in log.find(HOST_LINE):
        host = host_in(match)
        if host is not None and host.launcher == "torchrun" and each.source not in sources:
            return host
    return None


def _beside_an_agent(record: Record, agent: Host, each: Record, match: re.Match[str]) -> Finding:
    """Return that ranks wait on one host, while the torchrun of another one waits for its like."""
    node = 1 if agent.node == 0 else 0
    return Finding(
        f"torchrun on {agent.name} waits for {agent.nodes} nodes at {agent.master}:{agent.port}, and has started no "
        "rank, while ranks of another host wait in init_process_group: both wait for what the other one does not start",
        (
            each.proof(match, "all ranks come"),
            Evidence(f"{agent.name}: {agent.by}, waited", f"{agent.nodes} torchruns", "torchrun's options"),
        ),
        Fix(
            "start all hosts in one way: with torchrun on each",
            command=f"torchrun --nnodes={agent.nodes} --node_rank={node} --master_addr={agent.master} "
            f"--master_port={agent.port} ... train.py   # on the other host",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the other host was started without torchrun (python train.py with RANK, srun, mpirun)",
                f"torchrun on {agent.name} has gone on since, and its ranks are slow to come",
            ),
            "pgrep -af torchrun   # on each host: it runs on all of them, or on none",
        ),
    )


def _counted_apart(record: Record, said: list[tuple[Record, re.Match[str]]]) -> Finding:
    """Name the world sizes: ranks of one training that were told different ones wait for ranks that never come."""
    worlds = sorted({int(match["world"]) for _, match in said})
    return Finding(
        f"init_process_group is told {' ranks in one log and '.join(map(str, worlds[:SHOWN]))} in another: the hosts "
        "count differently, and wait for ranks that never come",
        tuple(each.proof(match, "one world size on all hosts") for each, match in said[:SHOWN]),
        Fix(
            "start the training on all hosts with the same numbers: of hosts, and of processes on each where the world "
            "size and the ranks are computed from it",
            command="grep -rnE 'world_size|nprocs?|nnodes' --include=*.py --include=*.sh .   # on each host",
        ),
        record.place,
    )


def waiting_launchers(record: Record, log: Log) -> Iterator[Finding]:
    """Yield that fewer hosts wait at one place than it takes: no log here is of the others."""
    hosts = [each for each in hosts_in(record, log) if each.launcher == "torchrun" and each.nodes]
    sizes = {each.nodes or 0 for each in hosts}
    wanted = min(sizes, default=0)
    if len(hosts) < 2 or len(sizes) > 1 or len(hosts) >= wanted:  # noqa: PLR2004 - of one nothing is compared
        return
    numbers = {each.node for each in hosts}
    absent = [number for number in range(wanted) if number not in numbers] if None not in numbers else []
    who = f": node {', '.join(map(str, absent[:SHOWN]))} did not come" if absent else ""
    yield Finding(
        f"{len(hosts)} of {wanted} nodes wait for the others at {hosts[0].master}:{hosts[0].port}{who}",
        tuple(_seen(each) for each in hosts[:SHOWN]),
        Fix(
            "start the same command on the nodes that are missing, or count those alone that take part: --nnodes",
            command="ddpdoctor check -- torchrun --nnodes=... train.py   # on each host, with its own options",
        ),
        record.place,
    )


def _seen(host: Host) -> Evidence:
    return Evidence(f"{host.name}: {host.by}, waits", f"{host.nodes} nodes", "torchrun's options")
