"""Has many simulated hosts meet the real server of ``ddpdoctor check``: what rank 0 must do and hold.

Usage: python benchmarks/meeting.py [--hosts 64 512 4096] [--closed 7]

Each number of hosts is tried in processes of its own. The guests are in one process, 64 of them at a time; what
they send are the real lines, with the descriptions of hosts as real ones have them, and rows of links that nobody has
tried: the tries themselves are not measured here. One host lets nobody in. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from ddpdoctor.cluster.host import Host, as_data, host_from
from ddpdoctor.cluster.matrix import Link, row_data
from ddpdoctor.cluster.meet import serving
from ddpdoctor.cluster.meet.meeting import Invitation
from ddpdoctor.cluster.plan import links, targets
from ddpdoctor.cluster.probing import OK
from ddpdoctor.cluster.suspects import suspects
from ddpdoctor.cluster.wire.client import SILENT, Client, find
from ddpdoctor.cluster.wire.server import Server
from ddpdoctor.host.facts import gather

TOKEN = b"benchmark"
MEGA = 1e6
PATIENCE = 540.0  # seconds
READS = 64  # of so many hosts one reads what all are, which each real one does for itself
AT_ONCE = 64  # hosts that come at the same time
VARIABLES = {f"NCCL_VARIABLE_{number}": "a value of some length" for number in range(12)}
CODE = {f"package/module_{number}.py": "0123456789abcdef" * 4 for number in range(60)}


def host(number: int, count: int) -> Host:
    """Return a host as real ones describe themselves: some variables, the hashes of the package's files."""
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Host(
        f"gpu-{number:05}.cluster.example", "torchrun", "--nnodes", count, number, number, count, "10.0.0.0", 29500,
        gloo=address, gloo_interface="eth0", addresses={address: "eth0", "127.0.0.1": "lo"}, data_port=40000,
        versions={"Python": "3.12", "torch": "2.13.0"}, variables=VARIABLES, code=CODE, clock=1.0, master_at="10.0.0.0",
    )  # fmt: skip


def seen(here: int, count: int, closed: int) -> tuple[Link, ...]:
    """Return the row of a host, of which one other lets nobody in."""
    return tuple(
        Link(here, each, "gloo", host(each, count).gloo, SILENT if each == closed else OK)
        for each in targets(here, count)
    )


def guests(port: int, count: int, closed: int, ready: Connection) -> None:
    """Come as all hosts but the first, hear who is there, and tell what was seen."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:

        def come(number: int) -> Client:
            client, tries = find(lambda: ("127.0.0.1",), (port,), TOKEN, time.monotonic() + PATIENCE, lambda _: False)
            if client is None:
                raise SystemExit(f"host {number} did not meet: {tries}")
            client.tell("hello", host=as_data(host(number, count)), skew=0.0)
            return client

        def take_part(client: Client) -> int:
            said = client.hear(time.monotonic() + PATIENCE)
            if len(said["roster"]) != count or (said["seat"] % READS == 1 and not _all_are_hosts(said["roster"])):
                raise SystemExit("not all hosts were told")
            client.tell("row", links=row_data(seen(int(said["seat"]), count, closed)), sees=[])
            return len(json.dumps(said)) if said["seat"] % READS == 1 else 0

        every = list(pool.map(come, range(1, count)))
        for client in every:
            stack.enter_context(client)
        heard = max(pool.map(take_part, every))
        ready.send(heard)
        ready.recv()


def _all_are_hosts(roster: list[object]) -> bool:
    return all(host_from(each).name for each in roster)


def rank_0(count: int, closed: int, answer: Connection) -> None:
    """Serve them; the links that this host would try itself are given."""
    serving.row = lambda here, hosts, _: seen(here, len(hosts), closed)  # type: ignore[assignment,attr-defined]
    here, there = multiprocessing.Pipe()
    before = peak()
    with Server(0, TOKEN, count) as server:
        others = multiprocessing.get_context("spawn").Process(target=guests, args=(server.port, count, closed, there))
        others.start()
        invitation = Invitation(host(0, count), count, PATIENCE, TOKEN, gather().network, lambda _: None)
        began, used = time.perf_counter(), processor()
        meeting = serving.serve(invitation, server)
        met, computed = time.perf_counter() - began, processor() - used
        heard = here.recv()
        here.send(None)
        began = time.perf_counter()
        found = suspects(meeting.cluster)
        explained = time.perf_counter() - began
        others.join()
    answer.send(
        {
            "met": len(meeting.cluster.hosts), "links": len(meeting.cluster.links), "seconds": met,
            "computed": computed,
            "explained": explained, "memory": peak() - before, "roster": heard,
            "named": [(each.fault.value, each.host) for each in found],
        }
    )  # fmt: skip


def processor() -> float:
    """Return the seconds that this process has used of a processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Print a row for each number of hosts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--closed", type=int, default=7)
    arguments = parser.parse_args()
    print("| hosts | rounds | links in all | told to each | in all | rank 0 computes | explains in | keeps | named |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for count in arguments.hosts:
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=rank_0, args=(count, arguments.closed, there))
        process.start()
        there.close()
        got: Any = here.recv()
        process.join()
        if (got["met"], got["links"]) != (count, links(count)):
            raise SystemExit(f"not all of them met: {got}")
        print(
            f"| {count:,} | {len(targets(0, count))} | {got['links']:,} | {got['roster'] / 1000:,.0f} kB | "
            f"{got['seconds']:.1f} s | {got['computed']:.1f} s | {got['explained']:.2f} s | "
            f"{got['memory'] / MEGA:,.0f} MB | {got['named']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
