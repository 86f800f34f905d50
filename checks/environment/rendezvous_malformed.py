"""A variable of the rendezvous has a value that cannot be right.

RANK counts from 0 and is less than WORLD_SIZE; LOCAL_RANK is less than LOCAL_WORLD_SIZE and, with GPUs, names one
that the process sees; MASTER_PORT is a free port above 1023. A rank outside of the world makes every process wait for
one that never comes (no rank 0: nobody opens the store); a port of a service (22, 80) is answered by somebody else,
and fails with "Address already in use" or a broken handshake.

To be sure: `env | grep -E 'RANK|WORLD_SIZE|MASTER_PORT'`.

Source: torch.distributed documentation, "Environment variable initialization". Holds for torch 2.2 to 2.13; seen with
torch 2.13: a RANK that is no integer raises ValueError "invalid literal for int()".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import visible

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP103", Severity.ERROR)
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
            yield _finding(rank, said[rank], f"less than {size}={numbers[size]}")
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


def _gpu(facts: Facts, numbers: Mapping[str, int]) -> Iterator[Finding]:
    seen = len(visible(facts.environ.get("CUDA_VISIBLE_DEVICES"), facts.gpus))
    # One visible GPU is how Slurm and Ray bind each rank to a GPU of its own.
    if seen > 1 and numbers.get("LOCAL_RANK", 0) >= seen:
        yield _finding("LOCAL_RANK", str(numbers["LOCAL_RANK"]), f"less than the {seen} GPUs that a rank sees")


def _integer(value: str) -> int | None:
    """Read it as torch does, by int(): blanks around it do no harm."""
    try:
        return int(value)
    except ValueError:
        return None


def _finding(name: str, value: str, expected: str) -> Finding:
    return Finding(
        f"{name}={value!r} cannot be right: it is to be {expected}",
        (Evidence(f"{name}={value!r}", expected, "environment"),),
        Fix(
            "choose a free port" if name == "MASTER_PORT" else "let torchrun set it",
            command="export MASTER_PORT=29500"
            if name == "MASTER_PORT"
            else "torchrun --standalone --nproc_per_node=2 train.py",
        ),
        Place(variable=name),
    )
