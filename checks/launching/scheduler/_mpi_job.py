"""An MPIJob of Kubernetes whose mpirun is to start more ranks than its workers have slots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Command, LaunchScript, Node

RANKS = {"-np", "-n", "--np", "-c"}
OVER = re.compile(r"oversubscribe|--?H\b|--?host", re.IGNORECASE)
"""Options by which mpirun takes other slots than those of the operator's hostfile."""


@dataclass(frozen=True, slots=True)
class ShortOfSlots:
    """``asked`` ranks, and so many workers with so many slots each; ``given`` says the slots, where the job does."""

    command: Command
    asked: int
    workers: int
    slots: int
    given: Node | None


def short_of_slots(launch: LaunchScript) -> ShortOfSlots | None:
    """Return the mpirun of a job that asks for more ranks than there are slots; None where there is none."""
    for document in launch.documents:
        kind, spec = document.get("kind"), document.get("spec")
        replicas = spec.get("mpiReplicaSpecs", "Worker", "replicas") if spec else None
        workers = replicas.number if replicas else None
        if kind is None or kind.text != "MPIJob" or spec is None or workers is None:
            continue
        given = spec.get("slotsPerWorker")
        slots = 1 if given is None else given.number
        inside = {id(each) for each in document.walk()}
        for command in (each for one in launch.containers if id(one.node) in inside for each in one.commands):
            asked = _asked(command)
            if asked is not None and slots is not None and asked > workers * slots:
                return ShortOfSlots(command, asked, workers, slots, given)
    return None


def _asked(command: Command) -> int | None:
    """Return how many ranks a plain mpirun is to start."""
    words = [each.text for each in command.words]
    asked = next((int(b) for a, b in pairwise(words) if a in RANKS and b.isdecimal()), None)
    return asked if words[:1] == ["mpirun"] and OVER.search(" ".join(words)) is None else None
