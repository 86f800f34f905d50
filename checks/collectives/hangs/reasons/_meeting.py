"""Ranks that wait for each other in init_process_group, each at a place of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddpdoctor.check import Doing, Joined, Joining

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled, Training

FILE = "file://"


def met_apart(event: Stalled, training: Training) -> tuple[Joining, Joining] | None:
    """Return two ranks of one training that never meet; None where it is not certain that they do not."""
    here = [each.pid for each in event.doing(Doing.WAITING) if not training.of(Joined, pid=each.pid)]
    told = [training.of(Joining, pid=pid)[-1] for pid in here if training.of(Joining, pid=pid)]
    first = next(iter(told), None)
    other = next((each for each in told if first is not None and _are_apart(first.address, each.address)), None)
    return (first, other) if first is not None and other is not None else None


def _are_apart(one: str, other: str) -> bool:
    """Whether two addresses are two files, or two ports: one host can have several names."""
    first, second = map(_place, (one, other))
    return bool(first and second) and first != second


def _place(address: str) -> str:
    plain = address.partition("?")[0]
    if plain.startswith(FILE):
        return os.path.realpath(plain.removeprefix(FILE))
    port = plain.rpartition(":")[2].rstrip("/")
    return port if port.isdecimal() and int(port) else ""
