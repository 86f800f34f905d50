"""A variable of the rendezvous has an invalid value.

## What happens

RANK counts from 0 and is less than WORLD_SIZE. LOCAL_RANK is less than LOCAL_WORLD_SIZE and, with GPUs, is the index
of one that the process sees. MASTER_PORT is a free port from 1024 to 65535. A rank outside of the world makes every
process wait for one that never comes; without a rank 0 nobody opens the store. The port of a service (22, 80) belongs
to another program: torch fails with "Address already in use" or a broken handshake.

On port 0 nobody can be reached: a store that asks for it listens on a port that the kernel chooses. A single rank does
not mind; several wait without a word until the time-out, 30 minutes, 10 with NCCL. torchrun sets MASTER_PORT anew,
whatever it was, but hands its own `--master_port=0` to the ranks as it is. `--standalone` is right, and so is
`--rdzv_endpoint=localhost:0` with the rendezvous c10d: torchrun then tells the ranks the port that it got.

## How to be sure

`env | grep -E 'RANK|WORLD_SIZE|MASTER_PORT'` prints the values. ddpdoctor judges each by itself, then RANK against
WORLD_SIZE, LOCAL_RANK against LOCAL_WORLD_SIZE and against the number of GPUs that the process sees. A process that
sees one GPU is not judged by that number: Slurm and Ray bind each rank to its own GPU in this way. `ddpdoctor run`
sees the address that init_process_group is told.

## How to mend it

Best first: set none of the ranks and sizes by hand, and start with
`torchrun --standalone --nproc_per_node=2 train.py`, which sets them all. For the port: choose a free one, the same
for all ranks, `export MASTER_PORT=29500`; on one host leave `--master_port` away. Where the variables are set by hand,
count RANK from 0 over all hosts and LOCAL_RANK from 0 on each host.

## Versions and sources

Holds for torch 2.2 to 2.13. Seen with torch 2.13: a RANK that is no integer raises ValueError "invalid literal for
int()"; both ranks of `torchrun --nproc_per_node=2 --master_port=0` time out at (127.0.0.1, 0). Source:
torch.distributed documentation, "Environment variable initialization"; torch.distributed.elastic.rendezvous,
static_tcp_rendezvous.py and api.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Joining,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    place,
    probe,
    visible_gpus,
    watch,
)

from ..._hosts.store import GAVE_UP_AT, meets_nowhere

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP352", Severity.ERROR)
LEAST = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 0}
PRIVILEGED, PORTS = 1024, 65536
INSIDE = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))


@probe
def by_their_values(facts: Facts) -> Iterator[Finding]:
    """Judge each variable by itself, then against the others."""
    said = {name: facts.environ[name] for name in LEAST if facts.environ.get(name)}
    if not said:
        raise NotRun("no variable of a rendezvous is set")
    numbers = {name: number for name, value in said.items() if (number := _integer(value)) is not None}
    for name, value in said.items():
        if name not in numbers or numbers[name] < LEAST[name]:
            yield _finding(name, value, f"a whole number from {LEAST[name]} on")
    for rank, size in INSIDE:
        if 0 < numbers.get(size, 0) <= numbers.get(rank, -1):
            yield _finding(rank, said[rank], f"from 0 to {numbers[size] - 1}, less than {size}={numbers[size]}")
    # Scripts for torchrun keep the number of nodes in WORLD_SIZE; where LOCAL_RANK is set, a launcher has been here.
    if "LOCAL_RANK" in numbers and numbers.get("LOCAL_WORLD_SIZE", 0) > numbers.get("WORLD_SIZE", sys.maxsize) > 0:
        yield _finding("LOCAL_WORLD_SIZE", said["LOCAL_WORLD_SIZE"], f"at most WORLD_SIZE={numbers['WORLD_SIZE']}")
    yield from _port(numbers)
    yield from _gpu(facts, numbers)


def _port(numbers: Mapping[str, int]) -> Iterator[Finding]:
    port = numbers.get("MASTER_PORT", PRIVILEGED)
    if port >= PORTS:
        yield _finding("MASTER_PORT", str(port), f"less than {PORTS}")
    elif 0 < port < PRIVILEGED:
        yield _finding("MASTER_PORT", str(port), f"a free port from {PRIVILEGED} on: lower ones belong to services")
    elif port == 0 and numbers.get("WORLD_SIZE") != 1:
        # Without a rank torchrun can still come, which sets another port.
        expected = f"a free port from {PRIVILEGED} on that all ranks know: on port 0 nobody is reached"
        yield _finding("MASTER_PORT", "0", expected, None if "RANK" in numbers else Severity.WARNING)


def _gpu(facts: Facts, numbers: Mapping[str, int]) -> Iterator[Finding]:
    seen = len(visible_gpus(facts.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus))
    # One visible GPU is how Slurm and Ray bind each rank to a GPU of its own.
    if seen > 1 and numbers.get("LOCAL_RANK", 0) >= seen:
        yield _finding("LOCAL_RANK", str(numbers["LOCAL_RANK"]), f"less than the {seen} GPUs that a rank sees")


def _integer(value: str) -> int | None:
    """Read it as torch does, by int(): blanks around it do no harm."""
    try:
        return int(value)
    except ValueError:
        return None


@watch(Joining)
def while_training(event: Joining) -> Iterator[Finding]:
    """Look at the address that several ranks are told to meet at."""
    if meets_nowhere(event):
        told = Evidence(f"init_process_group is told {event.address}", f"a port from {PRIVILEGED} on", "the call")
        yield _port_0(event.address, told, place(event.site))


@log_pattern(GAVE_UP_AT + r"0\b")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """See at which address nobody was reached."""
    yield _port_0(f"{match[1]}:0", record.proof(match, f"a port from {PRIVILEGED} on"), record.place)


def _port_0(address: str, told: Evidence, where: Place) -> Finding:
    return Finding(
        f"the ranks are told to meet at {address}, and nobody listens on port 0: they wait until the time-out",
        (told,),
        Fix(
            "leave the port to torchrun, without --master_port=0, or choose one that all ranks know",
            command="torchrun --standalone --nproc_per_node=2 train.py",
        ),
        where,
    )


def _finding(name: str, value: str, expected: str, severity: Severity | None = None) -> Finding:
    return Finding(
        f"{name}={value!r} is invalid: it must be {expected}",
        (Evidence(f"{name}={value!r}", expected, "environment"),),
        Fix(
            "choose a free port" if name == "MASTER_PORT" else "let torchrun set it",
            command="export MASTER_PORT=29500"
            if name == "MASTER_PORT"
            else "torchrun --standalone --nproc_per_node=2 train.py",
        ),
        Place(variable=name),
        severity=severity,
    )


SHORT = re.compile(r"\d+(?:\(x\d+\))?(?:,\d+(?:\(x\d+\))?)*")
READ = r"environ(?:\.get\(|\[)\s*[\"'](?P<name>(?:LOCAL_)?(?:RANK|WORLD_SIZE)|MASTER_PORT|SLURM_\w+|NODE_RANK)[\"']"


@log_pattern(r"ValueError: invalid literal for int\(\) with base 10: (?P<value>'[^'\n]{0,80}')")
def where_it_is_read(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the variable in the line of the script that could not read it."""
    lines = record.text[: match.start()].rstrip().splitlines()
    read = next(filter(None, (re.search(READ, line) for line in (*reversed(lines[-3:]), record.code))), None)
    short = SHORT.fullmatch(match["value"].strip("'"))
    if read and read["name"].startswith("SLURM_") and short:
        yield _in_short(record, match, read["name"])
    elif read:
        yield Finding(
            f"{read['name']}={match['value']} is no number",
            (record.proof(match, "a whole number"),),
            Fix(
                "see what sets it: a launch line whose own variable is empty, or has a blank or a unit in it",
                command=f"env | grep {read['name']}   # in the launch script, before the launch",
            ),
            replace(record.place, variable=read["name"]),
        )


def _in_short(record: Record, match: re.Match[str], name: str) -> Finding:
    """Slurm writes numbers of several nodes in short; nothing is wrong with the variable."""
    return Finding(
        f"{name}={match['value']} is read as one number; Slurm writes one for each node there, N(xM) for M of N",
        (record.proof(match, "a reader that takes 2(x3),1 apart"),),
        Fix(
            "take the number of the first node, or that of this one",
            diff=f'-int(os.environ["{name}"])\n+int(re.match(r"\\d+", os.environ["{name}"])[0])',
        ),
        replace(record.place, variable=name),
    )
